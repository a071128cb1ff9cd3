/* dcp-inspect ls: lists the steps of a directory, whatever state they are in. */
#include "inspect/commands.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/launch.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/program.h"

typedef struct row {
    const dcp_step *step;
    const char *state; /* complete, damaged, unreadable, partial, abandoned */
    dcp_glance seen;
    char damage[1024]; /* the first damage; empty if none was found */
    progress_bar bar;
} row;

static void on_damage(void *ctx, const char *what) {
    row *r = ctx;
    if (!r->damage[0]) snprintf(r->damage, sizeof r->damage, "%s", what);
}

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    progress_bar_update(&((row *)ctx)->bar, done, total);
}

/* Checks every byte of the step. Returns 0, or an exit status if the step is damaged or could not
 * be checked. If it could not be checked, prints a message. */
static int check(const char *folder, row *r) {
    const dcp_verify_options options = {.size = sizeof options,
                                        .on_damage = on_damage,
                                        .ctx = r,
                                        .on_progress = on_progress,
                                        .progress_ctx = r};
    dcp_error err = {0};
    progress_bar_start(&r->bar, r->step->name);
    int status = dcp_verify(folder, &options, &err);
    progress_bar_end(&r->bar);
    if (status == DCP_ERR_CORRUPT || status == DCP_ERR_NOT_FOUND) {
        on_damage(r, err.message);
        return PROGRAM_DIFFERS;
    }
    return status ? program_report(&err) : 0;
}

/* Fills in one row of the list. If a step is still being written, missing parts of it do not count
 * as damage. */
static int describe_step(const char *dir, const dcp_step *step, bool every_byte, row *r) {
    static const char *const states[] = {"complete", "partial", "abandoned"};
    char folder[PATH_MAX + 80];
    dcp_error err = {0};
    int status = 0;
    *r = (row){.step = step, .state = states[step->kind], .seen = DCP_GLANCE_INIT};
    snprintf(folder, sizeof folder, "%s/%s", dir, step->name);
    int glance = dcp_step_glance(folder, &r->seen, &err);
    if (step->kind == DCP_STEP_PARTIAL) return 0;
    const bool unread = glance == DCP_ERR_IO || glance == DCP_ERR_NO_MEMORY;
    if (glance)
        on_damage(r, err.message);
    else if (every_byte)
        status = check(folder, r);
    if (r->damage[0] && step->kind == DCP_STEP_COMPLETE)
        r->state = unread ? "unreadable" : "damaged";
    if (unread) return program_report(&err);
    return glance && every_byte ? PROGRAM_DIFFERS : status;
}

static const char *age_text(int64_t age, char *text) {
    if (age < 0)
        strcpy(text, "-");
    else if (age < 120)
        snprintf(text, 32, "%" PRId64 " s", age);
    else if (age < 7200)
        snprintf(text, 32, "%" PRId64 " min", age / 60);
    else if (age < 172800)
        snprintf(text, 32, "%" PRId64 " h", age / 3600);
    else
        snprintf(text, 32, "%" PRId64 " d", age / 86400);
    return text;
}

static int64_t age_of(const row *r) {
    if (r->seen.written < 0) return -1;
    double age = difftime(time(NULL), (time_t)r->seen.written);
    return age > 0 ? (int64_t)age : 0;
}

static const char *number_text(uint64_t value, char *text) {
    if (!value)
        strcpy(text, "-");
    else
        snprintf(text, 32, "%" PRIu64, value);
    return text;
}

static const char *layout_text(const row *r, char *text) {
    if (!r->seen.files)
        strcpy(text, "-");
    else if (r->seen.layout == DCP_LAYOUT_GLOBAL)
        strcpy(text, "global");
    else if (r->seen.files_here == r->seen.files)
        strcpy(text, "sharded");
    else
        snprintf(text, 32, "%d of %d", r->seen.files_here, r->seen.files);
    return text;
}

/* Returns the number of ranks: the number of shards or, for a global file, the number in
 * about.json. */
static int ranks_of(const row *r) {
    return r->seen.files && r->seen.layout == DCP_LAYOUT_SHARDED ? r->seen.files : r->seen.ranks;
}

/* For a step of a private store, writes which losses its redundancy survives; "" for other
 * steps. */
static const char *survives_text(const row *r, char *text, size_t size) {
    text[0] = '\0';
    if (r->seen.survives >= 0)
        snprintf(text, size, "  survives the loss of %d of %d %s", r->seen.survives,
                 r->seen.domains, r->seen.has_names ? "domains" : "hosts");
    return text;
}

static void print_step(const row *r) {
    char bytes[32], tensors[32], ranks[32], age[32], layout[32], survives[96];
    printf("%-30s %-10s %-8s %10s %8s %6s %8s%s%s%s\n", r->step->name, r->state,
           layout_text(r, layout), program_bytes_text(r->seen.bytes, bytes),
           number_text(r->seen.tensors, tensors), number_text((uint64_t)ranks_of(r), ranks),
           age_text(age_of(r), age), survives_text(r, survives, sizeof survives),
           r->damage[0] ? "  " : "", r->damage);
}

static json_t *known_json(bool known, int64_t value) {
    return known ? json_integer(value) : json_null();
}

static json_t *row_json(const row *r) {
    int64_t age = age_of(r);
    const char *layout = r->seen.layout == DCP_LAYOUT_GLOBAL ? "global" : "sharded";
    return json_pack("{s:s, s:o, s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s?}", "name",
                     r->step->name, "step", inspect_count_json(r->step->step), "state", r->state,
                     "layout", r->seen.files ? layout : NULL, "files",
                     known_json(r->seen.files > 0, r->seen.files), "bytes",
                     inspect_count_json(r->seen.bytes), "tensors",
                     known_json(r->seen.tensors > 0, (int64_t)r->seen.tensors), "ranks",
                     known_json(ranks_of(r) > 0, ranks_of(r)), "age_s", known_json(age >= 0, age),
                     "survives", known_json(r->seen.survives >= 0, r->seen.survives), "domains",
                     known_json(r->seen.domains > 0, r->seen.domains), "damage",
                     r->damage[0] ? r->damage : NULL);
}

/* Lists the steps. Returns the worst of their exit statuses. */
static int list(const char *dir, const dcp_step *steps, size_t n, bool every_byte, bool json) {
    json_t *rows = json_array();
    row r;
    int worst = 0;
    if (!json && n)
        printf("%-30s %-10s %-8s %10s %8s %6s %8s\n", "step", "state", "layout", "size", "tensors",
               "ranks", "age");
    for (size_t i = 0; i < n; i++) {
        int status = describe_step(dir, &steps[i], every_byte, &r);
        if (status > worst) worst = status;
        if (json && json_array_append_new(rows, row_json(&r)))
            worst = program_no_memory();
        else if (!json)
            print_step(&r);
    }
    if (json)
        inspect_text_print_json(json_pack("{s:s, s:O}", "dir", dir, "steps", rows));
    else if (n == 0)
        program_note("%s: holds no steps, which are folders with names such as step-00000120", dir);
    json_decref(rows);
    return worst;
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect ls ckpt             the steps\n"
    "  dcp-inspect ls ckpt --verify    and whether every byte of each step is right\n"
    "\n"
    "Lists the steps of a checkpoint directory, with size, tensors, the number of ranks that\n"
    "wrote them, and age. States: complete; damaged: a file is missing, its size or user block\n"
    "is wrong, or about.json is wrong, with the reason at the end; unreadable: the step could\n"
    "not be examined, which does not prove damage (exit status 3); partial: being written, or\n"
    "left by a killed writer; abandoned: set aside by a run that went back. For a store with a\n"
    "directory on each host, a line says how many hosts, or failure domains if the writer named\n"
    "any, may be lost. The exit status is 1 if --verify finds damage.\n"
    "\n"
    "JSON: dir, steps (name, step, state, layout, files, bytes, tensors, ranks, age_s,\n"
    "survives, domains, damage; null if a value is not known).";

int inspect_ls(int argc, char **argv) {
    bool json = false, every_byte = false;
    const program_option options[] = {
        PROGRAM_FLAG("verify", "check every byte of every step that is not partial", &every_byte),
        {0}};
    const program_command program = {.name = "dcp-inspect",
                                     .usage = "ls DIR [--verify] [--json]",
                                     .about = about,
                                     .options = options,
                                     .json = &json};
    char **args;
    int n, status = program_arguments_parse(&program, argc, argv, 1, 1, &args, &n);
    if (status >= 0) return status;
    struct stat st;
    if (stat(args[0], &st)) return program_fail_errno("cannot open", args[0]);
    if (!S_ISDIR(st.st_mode) || strlen(args[0]) >= PATH_MAX)
        return program_refuse("%.200s: not a folder", args[0]);
    dcp_error err = {0};
    dcp_step *steps;
    size_t count;
    if (dcp_steps_list(args[0], &steps, &count, &err)) return program_report(&err);
    const int is_step = count ? 0 : step_path_is_step(args[0]);
    if (is_step < 0)
        status = program_fail_errno("cannot look into", args[0]);
    else if (is_step)
        status = program_refuse(
            "%s: is a step's folder; give the directory that it lies in, or try 'dcp-inspect show'",
            args[0]);
    else
        status = list(args[0], steps, count, every_byte, json);
    free(steps);
    return status;
}
