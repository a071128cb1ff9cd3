/* dcp-reshard: rewrites a checkpoint's step for another layout, mesh or number of ranks. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <dcp/dcp.h>

#include "common/element.h"
#include "common/launch.h"
#include "programs/arguments.h"
#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/program.h"
#include "reshard/traffic.h"

#define MIB ((uint64_t)1 << 20)

typedef struct reshard_request {
    const char *src, *dst, *layout_name, *world_text, *mesh_text, *tp_rules, *svg, *memory_text;
    bool force, take_over, dry_run, json;
    dcp_layout layout;
    rank_mesh mesh;  /* the mesh of the files that are written */
    uint64_t memory; /* the most bytes that this process may use */
} reshard_request;

static int parse_values(reshard_request *s) {
    if (!s->layout_name)
        return program_refuse("--layout is missing: give --layout global or --layout sharded");
    s->layout = strcmp(s->layout_name, "sharded") == 0 ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL;
    if (s->layout == DCP_LAYOUT_GLOBAL && strcmp(s->layout_name, "global"))
        return program_refuse("--layout: '%s' is none of global, sharded", s->layout_name);
    if ((s->json || s->svg) && !s->dry_run)
        return program_refuse("%s determines how --dry-run prints the plan: give --dry-run, too",
                              s->json ? "--json" : "--svg");
    if (s->layout == DCP_LAYOUT_GLOBAL && (s->mesh_text || s->tp_rules || s->world_text))
        program_note("%s has no effect here: a global file serves any mesh and any number of ranks",
                     s->mesh_text  ? "--mesh"
                     : s->tp_rules ? "--tp-rule"
                                   : "--world");
    if (s->memory_text && program_size_parse("--memory", s->memory_text, &s->memory))
        return PROGRAM_USAGE;
    return rank_mesh_from_options(s->world_text, s->mesh_text, s->tp_rules, &s->mesh);
}

static const char about[] =
    "Common use:\n"
    "  dcp-reshard ckpt ckpt-8 --layout sharded --world 8    a file for each of eight ranks\n"
    "  dcp-reshard ckpt-8 ckpt-one --layout global           one file again\n"
    "  mpirun --oversubscribe -n 4 dcp-reshard ...           four ranks share the work\n"
    "\n"
    "Rewrites a step of SRC (a step's folder, or a checkpoint directory, meaning its newest\n"
    "complete step) into the checkpoint directory DST, where it keeps its number. The link\n"
    "DST/latest is neither made nor changed, because it is meant for the newest step of a run.\n"
    "The step is published only after the checksums of all tensors were found equal to those\n"
    "in SRC.\n"
    "Under mpirun the ranks share the work.\n"
    "\n"
    "Axes of a mesh (the first one varies slowest): fsdp cuts tensors on dimension 0; tp cuts\n"
    "them as Megatron does (q, k, v, gate, up and embeddings by outputs; o and down by\n"
    "inputs); replicate makes copies.";

static int parse_reshard(reshard_request *s, int argc, char **argv) {
    const program_option options[] = {
        PROGRAM_VALUE("layout", "global|sharded",
                      "one file for any number of ranks, or one file per rank", &s->layout_name),
        PROGRAM_VALUE("world", "N", "write N files, one per rank; a global file serves any N",
                      &s->world_text),
        PROGRAM_VALUE("mesh", "AXES",
                      "write one file per rank of a mesh: fsdp=4,tp=2 or fsdp=4,replicate=2",
                      &s->mesh_text),
        PROGRAM_VALUE("tp-rule", "GLOB=DIM",
                      "tp cuts tensors that match GLOB on DIM, or not at all if DIM is 'none'; "
                      "overrides built-in rules",
                      &s->tp_rules),
        PROGRAM_VALUE("memory", "SIZE", "the most memory that a process uses (256MiB)",
                      &s->memory_text),
        PROGRAM_FLAG("force", "replace the step in DST", &s->force),
        PROGRAM_FLAG("take-over",
                     "on a file system without locks: take over DST from a writer that has ended",
                     &s->take_over),
        PROGRAM_VALUE("svg", "FILE", "with --dry-run: also draw the bytes from old to new ranks",
                      &s->svg),
        {0}};
    const program_command program = {
        .name = "dcp-reshard",
        .usage = "SRC DST --layout global|sharded [--world N | --mesh AXES] [options]",
        .about = about,
        .options = options,
        .json = &s->json,
        .dry_run = &s->dry_run,
        .stops = true};
    char **args;
    int n, status = program_arguments_parse(&program, argc, argv, 2, 2, &args, &n);
    if (status >= 0) return status;
    s->src = args[0];
    s->dst = args[1];
    return parse_values(s) ? PROGRAM_USAGE : -1;
}

/* On rank 0: checks that DST is not the directory of SRC, and does not contain the step. */
static int check_dst(const reshard_request *s, const dcp_checkpoint *ckpt) {
    char src[PATH_MAX], dst[PATH_MAX];
    dcp_step *steps;
    size_t n;
    if (s->force || !realpath(s->dst, dst)) return 0;
    if (realpath(dcp_checkpoint_path(ckpt), src)) {
        bool is_step = strcmp(src, dst) == 0;
        *strrchr(src, '/') = 0;
        if (is_step || strcmp(src, dst) == 0)
            return program_refuse(
                "SRC and DST are the same directory, %s; --force replaces the step in it", dst);
    }
    int status = step_path_list(dst, &steps, &n);
    if (status) return status;
    for (size_t i = 0; i < n; i++)
        if (steps[i].step == dcp_checkpoint_step(ckpt))
            status =
                program_refuse("%s/%s: already exists; --force replaces it", s->dst, steps[i].name);
    free(steps);
    return status;
}

static int print_plan_json(const reshard_traffic *f, const reshard_traffic_labels *labels) {
    json_t *plan = reshard_traffic_json(f, labels);
    if (!plan) return program_no_memory();
    int failed = json_text_write(plan, 0, stdout);
    json_decref(plan);
    return failed ? program_fail_errno("cannot write to", "stdout") : 0;
}

static int print_plan(const reshard_request *s, const dcp_checkpoint *ckpt, int size) {
    char dst[PATH_MAX], axes[RANK_MESH_TEXT];
    bool has_mesh = s->layout == DCP_LAYOUT_SHARDED && s->mesh_text;
    snprintf(dst, sizeof dst, "%s/step-%08" PRIu64, s->dst, dcp_checkpoint_step(ckpt));
    const reshard_traffic_labels labels = {.src = dcp_checkpoint_path(ckpt),
                                           .dst = dst,
                                           .step = dcp_checkpoint_step(ckpt),
                                           .old_layout = dcp_checkpoint_layout(ckpt),
                                           .new_layout = s->layout,
                                           .mesh =
                                               has_mesh ? rank_mesh_print(&s->mesh, axes) : NULL,
                                           .processes = size};
    rank_mesh one;
    reshard_traffic f;
    rank_mesh_flat(size, &one); /* each process writes one part of a global file */
    int status = reshard_traffic_count(ckpt, s->layout == DCP_LAYOUT_SHARDED ? &s->mesh : &one, &f);
    if (status) return status;
    if (s->svg) {
        errno = reshard_traffic_draw(&f, labels.mesh, s->svg);
        if (errno) status = program_fail_errno("cannot write", s->svg);
    }
    if (!status && s->json)
        status = print_plan_json(&f, &labels);
    else if (!status)
        reshard_traffic_print(&f, &labels);
    reshard_traffic_free(&f);
    return status;
}

static dcp_box cut_more(void *ctx, const dcp_tensor *tensor, int shard, int k) {
    dcp_box boxes[RANK_MESH_QKV];
    int n = rank_mesh_boxes(ctx, tensor, rank_mesh_tp_cut(ctx, tensor), shard, boxes);
    return k + 1 < n ? boxes[k + 1] : (dcp_box){{0}, {0}};
}

static dcp_box cut_tensor(void *ctx, const dcp_tensor *tensor, int shard) {
    return cut_more(ctx, tensor, shard, -1);
}

/* Returns the bytes of memory that the process uses now. */
static uint64_t memory_now(void) {
    unsigned long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%llu %llu", &total, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Sets *out to the part of --memory that remains for tensor data. The rest is for the memory that
 * the process uses now, and for tables, including the descriptions of the boxes that this process
 * writes. */
static int divide_memory(const reshard_request *s, const dcp_checkpoint *ckpt, int size,
                         uint64_t *out) {
    enum { BOX_BYTES = 1536, REST = 24 << 20, MOST = 128 << 20 };
    char needed[32];
    uint64_t tensors = dcp_checkpoint_tensors(ckpt), shards = 1;
    if (s->layout == DCP_LAYOUT_SHARDED) shards += (uint64_t)(s->mesh.world / size);
    uint64_t fixed = memory_now() + tensors * shards * BOX_BYTES + REST;
    if (fixed + DCP_REWRITE_LEAST > s->memory)
        return program_refuse(
            "--memory: %" PRIu64 " MiB are not enough: the tables of these %" PRIu64
            " boxes and the smallest buffers require %s: allow more, or share the work "
            "among more processes by mpirun",
            s->memory / MIB, tensors * shards,
            program_bytes_text(fixed + DCP_REWRITE_LEAST, needed));
    *out = s->memory - fixed < MOST ? s->memory - fixed : MOST;
    return 0;
}

static void update_progress(void *ctx, uint64_t done, uint64_t total) {
    progress_bar_update(ctx, done, total);
}

/* Makes the members of a rewritten step's about.json, as JSON text that the caller frees: those of
 * the step in the folder `step`, except for members that the library doesn't always write and that
 * describe only that folder. (The library replaces its other members.) For example, they name the
 * run, and have the values by which a store keeps its best steps. If that step's about.json is
 * missing or damaged, nothing is copied. `mesh` is added unless it is NULL. */
static int make_about(const char *step, const char *mesh, char **out, dcp_error *err) {
    static const char *const left_out[] = {"mesh",    "rebuilt", "shards",  "survives",
                                           "domains", "domain",  "lineage", "back"};
    char *text = NULL;
    int status = dcp_about_read(step, &text, err);
    if (status == DCP_ERR_IO || status == DCP_ERR_NO_MEMORY) return status;
    json_t *made = status ? json_object() : core_json_read(text, strlen(text), NULL);
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        json_object_del(made, left_out[i]);
    const bool failed = !made || (mesh && json_object_set_new(made, "mesh", json_string(mesh)));
    free(text);
    *out = failed ? NULL : core_json_text(made, JSON_COMPACT);
    json_decref(made);
    return *out ? DCP_OK : core_fail_memory(err, 4096);
}

static int rewrite(const launch *job, const reshard_request *s, dcp_checkpoint *ckpt,
                   dcp_store *store, uint64_t memory) {
    dcp_error err = {0};
    char axes[RANK_MESH_TEXT];
    progress_bar bar;
    dcp_rewrite_options options = {.size = sizeof options,
                                   .layout = s->layout,
                                   .shards = s->layout == DCP_LAYOUT_SHARDED ? s->mesh.world : 0,
                                   .cut = cut_tensor,
                                   .cut_more = s->mesh.size[RANK_MESH_TP] > 1 ? cut_more : NULL,
                                   .cut_ctx = (void *)&s->mesh,
                                   .memory_bytes = memory,
                                   .on_progress = update_progress,
                                   .stop = launch_is_stopped,
                                   .progress_ctx = &bar};
    bool has_mesh = s->layout == DCP_LAYOUT_SHARDED && s->mesh_text;
    char *about_text = NULL;
    int status = make_about(dcp_checkpoint_path(ckpt),
                            has_mesh ? rank_mesh_print(&s->mesh, axes) : NULL, &about_text, &err);
    options.about_json = about_text;
    status = launch_worst(job, status ? program_report(&err) : 0);
    if (status) return free(about_text), status;
    progress_bar_start(&bar, "resharding");
    status = dcp_rewrite(ckpt, store, &options, NULL, &err);
    progress_bar_end(&bar);
    free(about_text);
    return status ? program_report(&err) : 0;
}

/* Removes DST after a failure if it contains no steps. */
static void remove_empty(const char *dst) {
    char lock[PATH_MAX + 8];
    dcp_step *steps;
    size_t n;
    if (dcp_steps_list(dst, &steps, &n, NULL)) return;
    free(steps);
    snprintf(lock, sizeof lock, "%.*s/.lock", PATH_MAX, dst);
    if (n == 0 && unlink(lock) == 0) rmdir(dst);
}

/* Rewrites the checkpoint, and closes it before the store: if the checkpoint is the step that is
 * being replaced, the store removes that step when the store is closed. */
static int reshard(const launch *job, const reshard_request *s, dcp_checkpoint *ckpt) {
    dcp_error err = {0};
    dcp_store *store = NULL;
    uint64_t memory = 0, step = dcp_checkpoint_step(ckpt);
    dcp_store_options options = {.size = sizeof options,
                                 .replace = s->force,
                                 .keep_latest = 1,
                                 .tool = "dcp-reshard",
                                 .take_over = s->take_over};
    bool is_new = access(s->dst, F_OK) != 0;
    int status = launch_worst(job, divide_memory(s, ckpt, job->size, &memory));
    if (!status && dcp_store_open(job->comm, s->dst, &options, &store, &err))
        status = program_report(&err);
    if (store) status = rewrite(job, s, ckpt, store, memory);
    dcp_checkpoint_close(ckpt);
    if (!store) return status;
    dcp_store_close(store);
    if (status && is_new && job->rank == 0) remove_empty(s->dst);
    if (status == 0 && job->rank == 0)
        printf("%s/step-%08" PRIu64 ": %s, %d file%s\n", s->dst, step, s->layout_name,
               s->layout == DCP_LAYOUT_SHARDED ? s->mesh.world : 1,
               s->layout == DCP_LAYOUT_SHARDED && s->mesh.world > 1 ? "s" : "");
    return status;
}

/* Raises the limit on open files as far as the system permits, because every shard is an open
 * file. */
static void allow_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int run_reshard(const launch *job, reshard_request *s) {
    dcp_error err = {0};
    dcp_checkpoint *ckpt;
    if (s->layout == DCP_LAYOUT_SHARDED && !s->mesh.world) {
        if (job->size == 1)
            return program_refuse("--layout sharded needs --world N or --mesh AXES");
        rank_mesh_free(&s->mesh);
        rank_mesh_flat(job->size, &s->mesh);
    }
    allow_files();
    if (dcp_checkpoint_open(job->comm, s->src, &ckpt, &err)) return program_report(&err);
    int status = job->rank == 0 ? check_dst(s, ckpt) : 0;
    if (!status && job->rank == 0) status = rank_mesh_check_rules(&s->mesh, ckpt);
    if (!status && job->rank == 0) status = rank_mesh_check_heads(&s->mesh, ckpt);
    status = launch_worst(job, status);
    if (status == 0 && !s->dry_run) return reshard(job, s, ckpt);
    if (status == 0)
        status = launch_worst(job, job->rank == 0 ? print_plan(s, ckpt, job->size) : 0);
    dcp_checkpoint_close(ckpt);
    return status;
}

int main(int argc, char **argv) {
    reshard_request s = {.memory = 256 * MIB};
    launch job;
    int status = parse_reshard(&s, argc, argv);
    if (status >= 0) return status;
    launch_catch_signals();
    status = launch_start(&job);
    if (status == 0) status = run_reshard(&job, &s);
    if (status == PROGRAM_DIFFERS && !job.rank) step_path_note_older(s.src);
    launch_end(&job);
    rank_mesh_free(&s.mesh);
    return launch_exit_status(status);
}
