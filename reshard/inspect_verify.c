/* dcp-inspect verify: every byte of a step, or of all. Damage goes to stdout, one line each. */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "dcp/checkpoint.h"
#include "inspect.h"
#include "locate.h"

typedef struct verification {
    cli_progress progress;
    uint64_t bytes;
    json_t *damage; /* NULL: as text */
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
    cli_progress_end(&v->progress);
    printf("%s\n", what);
}

static void on_note(void *ctx, const char *what) {
    verification *v = ctx;
    cli_progress_end(&v->progress);
    cli_note("%s", what);
}

static void on_progress(void *ctx, uint64_t done, uint64_t total) {
    verification *v = ctx;
    v->bytes = total;
    cli_progress_update(&v->progress, done, total);
}

/* The folder is there, so whatever is missing in it is damage. */
static int judge(verification *v, int status, const dcp_error *err) {
    if ((status == DCP_ERR_NOT_FOUND || status == DCP_ERR_CORRUPT) && v->damages == 0)
        on_damage(v, err->message);
    if (v->damages) return CLI_DIFFERS;
    return status ? cli_report(err) : CLI_DONE;
}

static void print_verdict(const char *step, const verification *v) {
    char text[32];
    if (v->damages)
        printf("%s: DAMAGED, %zu place%s\n", step, v->damages, v->damages == 1 ? "" : "s");
    else
        printf("%s: intact, %s checked\n", step, cli_bytes(v->bytes, text));
}

static int is_part_of_a_step(const char *name, int has_state) {
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "about.json") == 0)
        return 1;
    return has_state ? strcmp(name, "state.h5") == 0 : strncmp(name, "shard-", 6) == 0;
}

/* What nobody reads is no damage. */
static void note_other_files(const char *step) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/state.h5", step);
    int has_state = access(path, F_OK) == 0;
    DIR *dir = opendir(step);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (!is_part_of_a_step(e->d_name, has_state))
            cli_note("%s/%s: not part of a checkpoint, not checked", step, e->d_name);
    if (dir) closedir(dir);
}

/* One step; as JSON it becomes *json. */
static int verify_step(const char *step, json_t **json) {
    dcp_error err = {0};
    verification v = {.damage = json ? json_array() : NULL};
    dcp_verify_options options = {
        .on_damage = on_damage, .on_note = on_note, .on_progress = on_progress, .ctx = &v};
    note_other_files(step);
    cli_progress_start(&v.progress, "checking");
    int status = judge(&v, dcp_verify(step, &options, &err), &err);
    cli_progress_end(&v.progress);
    if (json)
        *json = json_pack("{s:s, s:b, s:I, s:o}", "path", step, "intact", status == 0, "bytes",
                          (json_int_t)v.bytes, "damage", v.damage);
    else if (status <= CLI_DIFFERS)
        print_verdict(step, &v);
    return status;
}

static int verify_newest(const char *ckpt, int as_json) {
    char step[PATH_MAX];
    json_t *json = NULL;
    int status = locate_step(ckpt, step);
    if (status) return status;
    status = verify_step(step, as_json ? &json : NULL);
    if (as_json) inspect_print_json(json);
    return status;
}

/* The worst status of all complete steps. */
static int verify_all(const char *dir, int as_json) {
    char path[PATH_MAX + 80];
    dcp_error err = {0};
    dcp_step *steps;
    size_t n, complete = 0;
    int worst = 0;
    if (dcp_steps_list(dir, &steps, &n, &err)) return cli_report(&err);
    json_t *list = as_json ? json_array() : NULL;
    for (size_t i = 0; i < n; i++) {
        if (steps[i].kind != DCP_STEP_COMPLETE) continue;
        json_t *json = NULL;
        snprintf(path, sizeof path, "%s/%s", dir, steps[i].name);
        int status = verify_step(path, as_json ? &json : NULL);
        if (status > worst) worst = status;
        json_array_append_new(list, json);
        complete++;
    }
    free(steps);
    if (!complete) {
        json_decref(list);
        return cli_fail(CLI_USAGE, "%s: holds no complete step", dir);
    }
    if (as_json)
        inspect_print_json(
            json_pack("{s:s, s:b, s:o}", "dir", dir, "intact", worst == 0, "steps", list));
    return worst;
}

int inspect_verify(int argc, char **argv) {
    int json = 0, all = 0;
    const cli_option options[] = {
        {"all", NULL, "check every complete step of the directory CKPT", NULL, &all},
        {"json", NULL, "print one JSON object", NULL, &json},
        {0}};
    const cli_program program = {
        "dcp-inspect", "verify CKPT [--all] [--json]",
        "Reads every byte of a step and checks it. CKPT is a step's folder, or a directory of "
        "steps,\n"
        "meaning its newest complete one. Exit status 1 where there is damage, each on a line.",
        options};
    char **args;
    int n, status = cli_parse(&program, argc, argv, 1, 1, &args, &n);
    if (status >= 0) return status;
    return all ? verify_all(args[0], json) : verify_newest(args[0], json);
}
