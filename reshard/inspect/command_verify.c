/* dcp-inspect verify: checks every byte of one step, or of all steps. Prints one line on stdout for
 * each damaged place. */
#include "inspect/commands.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dcp/checkpoint.h>

#include "common/launch.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/program.h"

typedef struct verification {
    const launch *job;
    progress_bar progress;
    uint64_t bytes;
    json_t *damage; /* NULL: print text */
    size_t damages;
} verification;

static void on_damage(void *ctx, const char *what) {
    verification *v = ctx;
    v->damages++;
    if (v->damage) {
        json_t *text = json_string(what);
        json_array_append_new(v->damage, text ? text : json_string("a name that is not UTF-8"));
        return;
    }
    progress_bar_end(&v->progress);
    inspect_text_print(what);
}

static void on_note(void *ctx, const char *what) {
    verification *v = ctx;
    progress_bar_end(&v->progress);
    program_note("%s", what);
}

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    verification *v = ctx;
    v->bytes = total;
    progress_bar_update(&v->progress, done, total);
}

/* Returns the exit status for the result of dcp_verify. The folder exists, so DCP_ERR_NOT_FOUND
 * means that a part of the step is missing, which is damage. A file that cannot be read is not
 * damage. */
static int judge_step(verification *v, int status, const dcp_error *err) {
    bool is_damage = status == DCP_ERR_NOT_FOUND || status == DCP_ERR_CORRUPT;
    if (is_damage && !v->damages && !v->job->rank) on_damage(v, err->message);
    if (is_damage) return PROGRAM_DIFFERS;
    if (status) status = program_report(err);
    return v->damages ? PROGRAM_DIFFERS : status;
}

static void print_verdict(const char *step, const verification *v) {
    char text[32];
    if (v->damages)
        printf("%s: DAMAGED, %zu place%s\n", step, v->damages, v->damages == 1 ? "" : "s");
    else
        printf("%s: intact, %s checked\n", step, program_bytes_text(v->bytes, text));
}

/* Returns true if the step is intact, false if it is damaged, and null if that could not be
 * determined. */
static json_t *verdict_json(int status) {
    return status > PROGRAM_DIFFERS ? json_null() : json_boolean(status == 0);
}

/* Verifies one step. If json is not NULL, stores the result in *json on rank 0 instead of printing
 * it. Collective. */
static int verify_step(const launch *job, const char *step, json_t **json) {
    dcp_error err = {0};
    verification v = {.job = job, .damage = json ? json_array() : NULL};
    dcp_verify_options options = {.size = sizeof options,
                                  .on_damage = on_damage,
                                  .on_note = on_note,
                                  .ctx = &v,
                                  .on_progress = on_progress,
                                  .progress_ctx = &v};
    progress_bar_start(&v.progress, "checking");
    int status = judge_step(&v, dcp_verify_with(job->comm, step, &options, &err), &err);
    progress_bar_end(&v.progress);
    if (job->rank)
        json_decref(v.damage);
    else if (json)
        *json = json_pack("{s:s, s:o, s:I, s:o}", "path", step, "intact", verdict_json(status),
                          "bytes", (json_int_t)v.bytes, "damage", v.damage);
    else if (status <= PROGRAM_DIFFERS)
        print_verdict(step, &v);
    return status;
}

/* Rank 0 finds the step, and all ranks get the same path. Collective. */
static int find_step(const launch *job, const char *ckpt, char *step) {
    int status = job->rank ? 0 : step_path_find(ckpt, step);
    launch_broadcast(job, &status, sizeof status);
    if (!status) launch_broadcast(job, step, PATH_MAX);
    return status;
}

static int verify_newest(const launch *job, const char *ckpt, bool as_json) {
    char step[PATH_MAX] = "";
    json_t *json = NULL;
    int status = find_step(job, ckpt, step);
    if (status) return status;
    status = verify_step(job, step, as_json ? &json : NULL);
    if (json) inspect_text_print_json(json);
    if (status == PROGRAM_DIFFERS && !job->rank) step_path_note_older(ckpt);
    return status;
}

/* Verifies all steps and returns the worst exit status. Collective. */
static int verify_each(const launch *job, const char *dir, const dcp_step *steps, size_t n,
                       json_t *list) {
    char path[PATH_MAX + 80];
    int worst = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *json = NULL;
        snprintf(path, sizeof path, "%s/%s", dir, steps[i].name);
        int status = verify_step(job, path, list ? &json : NULL);
        if (status > worst) worst = status;
        if (json && json_array_append_new(list, json)) worst = program_no_memory();
    }
    return worst;
}

/* Rank 0 lists the complete steps, and all ranks get the same list of *n steps. Returns an exit
 * status. */
static int list_complete(const launch *job, const char *dir, dcp_step **steps, size_t *n) {
    int status = job->rank ? 0 : step_path_list(dir, steps, n);
    if (!job->rank && !status && !*n) status = program_refuse("%s: holds no complete step", dir);
    launch_broadcast(job, &status, sizeof status);
    if (status) return status;
    launch_broadcast(job, n, sizeof *n);
    if (job->rank) *steps = calloc(*n, sizeof **steps);
    if (launch_worst(job, *steps ? 0 : PROGRAM_FAILED)) return PROGRAM_FAILED;
    for (size_t i = 0; i < *n; i++) launch_broadcast(job, &(*steps)[i], sizeof **steps);
    return 0;
}

static int verify_all(const launch *job, const char *dir, bool as_json) {
    dcp_step *steps = NULL;
    size_t n;
    int status = list_complete(job, dir, &steps, &n);
    if (!status) {
        json_t *list = as_json ? json_array() : NULL;
        status = verify_each(job, dir, steps, n, list);
        if (as_json && !job->rank)
            inspect_text_print_json(json_pack("{s:s, s:o, s:O}", "dir", dir, "intact",
                                              verdict_json(status), "steps", list));
        json_decref(list);
    }
    free(steps);
    return status;
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect verify ckpt                                the newest complete step\n"
    "  dcp-inspect verify ckpt/step-00000120                  this one\n"
    "  dcp-inspect verify ckpt --all                          all complete steps\n"
    "  mpirun --oversubscribe -n 4 dcp-inspect verify ckpt    four ranks share the reading\n"
    "\n"
    "Reads every byte of a step, past the page cache and on all cores, and checks it. Prints a\n"
    "line for each damage, with the file and the tensor, block and bytes, or the structure;\n"
    "the exit status is then 1. If no damage was found, but something could not be read, the\n"
    "exit status is 3.\n"
    "\n"
    "JSON: path, intact (null: it could not be read), bytes, damage (lines). JSON with --all:\n"
    "dir, intact, steps (a list of such objects).";

int inspect_verify(int argc, char **argv) {
    bool json = false, all = false;
    const program_option options[] = {
        PROGRAM_FLAG("all", "check every complete step of the directory CKPT", &all), {0}};
    const program_command program = {.name = "dcp-inspect",
                                     .usage = "verify CKPT [--all] [--json]",
                                     .about = about,
                                     .options = options,
                                     .json = &json};
    char **args;
    launch job;
    int n, status = program_arguments_parse(&program, argc, argv, 1, 1, &args, &n);
    if (status >= 0) return status;
    status = launch_start(&job);
    if (!status)
        status = launch_worst(&job, all ? verify_all(&job, args[0], json)
                                        : verify_newest(&job, args[0], json));
    launch_end(&job);
    return status;
}
