/* dcp-reshard: rewrites a checkpoint's step for another layout or number of ranks. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "dcp/dcp.h"
#include "launch.h"
#include "shards.h"

enum { MAX_WORLD = 99999 }; /* five digits in a shard's file name */

typedef struct settings {
    const char *src, *dst, *layout_name, *world_text, *mesh;
    int force, dry_run;
    dcp_layout layout;
    int world; /* files of the sharded layout; 0: as many as ranks, or global */
} settings;

/* "fsdp=4", perhaps with axes of 1. */
static int parse_mesh(const char *mesh, uint64_t *world) {
    char text[256];
    int fsdp = 0;
    snprintf(text, sizeof text, "%s", mesh);
    for (char *save, *axis = strtok_r(text, ",", &save); axis; axis = strtok_r(NULL, ",", &save)) {
        uint64_t size;
        char *equals = strchr(axis, '=');
        if (!equals) return cli_fail(CLI_USAGE, "--mesh: '%s' is not axis=size", axis);
        *equals = 0;
        if (cli_parse_count("--mesh", equals + 1, MAX_WORLD, &size)) return CLI_USAGE;
        if (strcmp(axis, "fsdp") == 0) {
            *world = size;
            fsdp = 1;
        } else if (size != 1) {
            return cli_fail(CLI_USAGE, "--mesh: the axis '%s' is not built yet; fsdp=N is", axis);
        }
    }
    return fsdp ? 0 : cli_fail(CLI_USAGE, "--mesh: '%s' names no fsdp=N", mesh);
}

static int parse_world(settings *s) {
    uint64_t world = 0, mesh_world = 0;
    if (s->world_text && cli_parse_count("--world", s->world_text, MAX_WORLD, &world))
        return CLI_USAGE;
    if (s->mesh && parse_mesh(s->mesh, &mesh_world)) return CLI_USAGE;
    if (world && mesh_world && world != mesh_world)
        return cli_fail(CLI_USAGE, "--world %" PRIu64 " contradicts --mesh %s", world, s->mesh);
    if (s->layout == DCP_LAYOUT_SHARDED) s->world = (int)(world ? world : mesh_world);
    return 0;
}

static int parse(settings *s, int argc, char **argv) {
    const cli_option options[] = {
        {"layout", "global|sharded", "one file for any number of ranks, or a file a rank",
         &s->layout_name, NULL},
        {"world", "N", "ranks to cut for (sharded; a global file serves any)", &s->world_text,
         NULL},
        {"mesh", "fsdp=N", "the same as --world N", &s->mesh, NULL},
        {"force", NULL, "replace the step in DST", NULL, &s->force},
        {"dry-run", NULL, "print what would be read and written", NULL, &s->dry_run},
        {0}};
    const cli_program program = {
        "dcp-reshard", "SRC DST --layout global|sharded [--world N] [options]",
        "Rewrites a step of SRC (a step's folder, or a checkpoint directory, meaning its newest\n"
        "complete step) into the checkpoint directory DST, where it keeps its number. DST gets no\n"
        "'latest': a step that was rewritten is not a run's newest.",
        options};
    char **args;
    int n, status = cli_parse(&program, argc, argv, 2, 2, &args, &n);
    if (status >= 0) return status;
    s->src = args[0];
    s->dst = args[1];
    if (!s->layout_name)
        return cli_fail(CLI_USAGE, "--layout global or --layout sharded is needed");
    s->layout = strcmp(s->layout_name, "sharded") == 0 ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL;
    if (s->layout == DCP_LAYOUT_GLOBAL && strcmp(s->layout_name, "global"))
        return cli_fail(CLI_USAGE, "--layout: '%s' is none of global, sharded", s->layout_name);
    return parse_world(s) ? CLI_USAGE : -1;
}

/* The library writes these members itself. NULL: out of memory. */
static char *strip_json(const char *json) {
    json_t *meta = json_loads(json, 0, NULL);
    json_object_del(meta, "format");
    json_object_del(meta, "step");
    json_object_del(meta, "shard");
    char *text = json_dumps(meta, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(meta);
    return text;
}

/* Rank 0: SRC's directory must not be DST, nor DST hold the step. */
static int check_dst(const settings *s, const dcp_checkpoint *ckpt) {
    char src[PATH_MAX], dst[PATH_MAX];
    dcp_error err = {0};
    dcp_step *steps;
    size_t n;
    if (s->force || !realpath(s->dst, dst)) return 0;
    if (realpath(dcp_checkpoint_path(ckpt), src)) {
        int is_step = strcmp(src, dst) == 0;
        *strrchr(src, '/') = 0;
        if (is_step || strcmp(src, dst) == 0)
            return cli_fail(CLI_USAGE,
                            "SRC and DST are the same directory, %s; --force replaces "
                            "the step in it",
                            dst);
    }
    if (dcp_steps_list(dst, &steps, &n, &err)) return cli_report(&err);
    int status = 0;
    for (size_t i = 0; i < n; i++)
        if (steps[i].kind == DCP_STEP_COMPLETE && steps[i].step == dcp_checkpoint_step(ckpt))
            status = cli_fail(CLI_USAGE, "%s/%s: is there already; --force replaces it", s->dst,
                              steps[i].name);
    free(steps);
    return status;
}

/* Bytes of shard `rank` of `world`. */
static uint64_t shard_bytes(const dcp_checkpoint *ckpt, int rank, int world) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
        dcp_box box = dcp_box_chunk(t, rank, world);
        bytes += dcp_box_elems(&box, t->ndim) * dcp_dtype_bytes(t->dtype);
    }
    return bytes;
}

static void print_plan(const settings *s, const dcp_checkpoint *ckpt, int size) {
    char text[32];
    uint64_t step = dcp_checkpoint_step(ckpt);
    int files = dcp_checkpoint_files(ckpt);
    printf("read %s: %s in %d file%s, %s\n", dcp_checkpoint_path(ckpt),
           dcp_checkpoint_layout(ckpt) == DCP_LAYOUT_GLOBAL ? "global" : "sharded", files,
           files == 1 ? "" : "s", cli_bytes(shard_bytes(ckpt, 0, 1), text));
    if (s->world == 0)
        for (int r = 0; r < size; r++)
            printf("write %s/step-%08" PRIu64 "/state.h5: rank %d, %s\n", s->dst, step, r,
                   cli_bytes(shard_bytes(ckpt, r, size), text));
    for (int r = 0; r < s->world; r++)
        printf("write %s/step-%08" PRIu64 "/shard-%05d-of-%05d.h5: rank %d, %s\n", s->dst, step, r,
               s->world, r % size, cli_bytes(shard_bytes(ckpt, r, s->world), text));
}

typedef struct bar {
    cli_progress progress;
    uint64_t done, total;
} bar;

/* The save may ask for a byte more than once. */
static void advance(void *ctx, uint64_t bytes) {
    bar *b = ctx;
    b->done = b->done + bytes < b->total ? b->done + bytes : b->total;
    cli_progress_update(&b->progress, b->done, b->total);
}

static int save(const settings *s, dcp_checkpoint *ckpt, dcp_store *store, shards *source,
                dcp_error *err) {
    char *json = strip_json(dcp_checkpoint_json(ckpt));
    bar b = {.total = dcp_state_local_bytes(shards_state(source))};
    dcp_save_options options = {.layout = s->layout, .shards = s->world};
    cli_progress_start(&b.progress, "resharding");
    shards_on_read(source, advance, &b);
    int status =
        dcp_save(store, dcp_checkpoint_step(ckpt), shards_state(source), json, &options, NULL, err);
    cli_progress_end(&b.progress);
    free(json);
    return status;
}

static int reshard(const launch *job, const settings *s, dcp_checkpoint *ckpt) {
    dcp_error err = {0};
    dcp_store *store;
    shards *source;
    dcp_store_options options = {.replace = s->force, .keep_latest = 1, .tool = "dcp-reshard"};
    if (dcp_store_open(job->comm, s->dst, &options, &store, &err)) return cli_report(&err);
    int status = shards_make(ckpt, job->rank, job->size, s->world, &source, &err);
    int worst = launch_worst(job, status ? cli_report(&err) : 0);
    if (worst) goto close_store;
    if (save(s, ckpt, store, source, &err)) worst = cli_report(&err);
close_store:
    if (status == DCP_OK) shards_free(source);
    dcp_store_close(store);
    if (worst == 0 && job->rank == 0)
        printf("%s/step-%08" PRIu64 ": %s, %d file%s\n", s->dst, dcp_checkpoint_step(ckpt),
               s->layout_name, s->world ? s->world : 1, s->world > 1 ? "s" : "");
    return worst;
}

static int run(const launch *job, settings *s) {
    dcp_error err = {0};
    dcp_checkpoint *ckpt;
    if (s->layout == DCP_LAYOUT_SHARDED && s->world == 0) s->world = job->size > 1 ? job->size : 0;
    if (s->layout == DCP_LAYOUT_SHARDED && s->world == 0)
        return cli_fail(CLI_USAGE, "--layout sharded needs --world N");
    if (dcp_checkpoint_open(job->comm, s->src, &ckpt, &err)) return cli_report(&err);
    int status = launch_worst(job, job->rank == 0 ? check_dst(s, ckpt) : 0);
    if (status == 0 && !s->dry_run)
        status = reshard(job, s, ckpt);
    else if (status == 0 && job->rank == 0)
        print_plan(s, ckpt, job->size);
    dcp_checkpoint_close(ckpt);
    return status;
}

int main(int argc, char **argv) {
    settings s = {0};
    launch job;
    int status = parse(&s, argc, argv);
    if (status >= 0) return status;
    status = launch_start(&job);
    if (status == 0) status = run(&job, &s);
    launch_end(&job);
    return status;
}
