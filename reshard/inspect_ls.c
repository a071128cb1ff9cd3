/* dcp-inspect ls: the steps of a directory, whatever state they are in. */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli.h"
#include "dcp/checkpoint.h"
#include "inspect.h"

typedef struct row {
    const dcp_step *step;
    const char *state;  /* complete, partial, abandoned, damaged */
    const char *layout; /* global, sharded; NULL: not known */
    uint64_t bytes;     /* of its files */
    int64_t tensors, ranks;
    time_t written; /* these four -1: not known */
} row;

static void scan_files(const char *folder, row *out) {
    struct stat st;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (fstatat(dirfd(dir), e->d_name, &st, 0) || !S_ISREG(st.st_mode)) continue;
        out->bytes += (uint64_t)st.st_size;
        if (st.st_mtime > out->written) out->written = st.st_mtime;
        if (strcmp(e->d_name, "state.h5") == 0) out->layout = "global";
        if (strncmp(e->d_name, "shard-", 6) == 0) out->layout = "sharded";
    }
    if (dir) closedir(dir);
}

static void read_about(const char *folder, row *out) {
    char path[PATH_MAX + 100];
    struct tm tm = {0};
    snprintf(path, sizeof path, "%s/about.json", folder);
    json_t *about = json_load_file(path, 0, NULL);
    json_t *ranks = json_object_get(about, "ranks");
    const char *when = json_string_value(json_object_get(about, "time"));
    if (json_is_integer(ranks)) out->ranks = json_integer_value(ranks);
    if (when && strptime(when, "%Y-%m-%dT%H:%M:%S", &tm)) out->written = timegm(&tm);
    json_decref(about);
}

/* Opening checks the tables: a step that has its final name and does not open is damaged. */
static void read_tables(dcp_comm *self, const char *folder, row *out) {
    dcp_checkpoint *ckpt;
    if (dcp_checkpoint_open(self, folder, &ckpt, NULL)) {
        if (out->step->kind == DCP_STEP_COMPLETE) out->state = "damaged";
        return;
    }
    out->tensors = (int64_t)dcp_checkpoint_tensors(ckpt);
    dcp_checkpoint_close(ckpt);
}

static row describe(dcp_comm *self, const char *dir, const dcp_step *step) {
    static const char *const states[] = {"complete", "partial", "abandoned"};
    char folder[PATH_MAX + 80];
    row r = {.step = step, .state = states[step->kind], .tensors = -1, .ranks = -1, .written = -1};
    snprintf(folder, sizeof folder, "%s/%s", dir, step->name);
    scan_files(folder, &r);
    read_about(folder, &r);
    if (step->kind != DCP_STEP_PARTIAL) read_tables(self, folder, &r);
    return r;
}

static const char *age_text(time_t written, char *text) {
    double age = difftime(time(NULL), written);
    if (written < 0)
        strcpy(text, "-");
    else if (age < 120)
        snprintf(text, 32, "%.0f s", age > 0 ? age : 0);
    else if (age < 7200)
        snprintf(text, 32, "%.0f min", age / 60);
    else if (age < 172800)
        snprintf(text, 32, "%.0f h", age / 3600);
    else
        snprintf(text, 32, "%.0f d", age / 86400);
    return text;
}

static const char *number_text(int64_t value, char *text) {
    if (value < 0)
        strcpy(text, "-");
    else
        snprintf(text, 32, "%" PRId64, value);
    return text;
}

static void print_row(const row *r) {
    char bytes[32], tensors[32], ranks[32], age[32];
    printf("%-30s %-10s %-8s %10s %8s %6s %8s\n", r->step->name, r->state,
           r->layout ? r->layout : "-", cli_bytes(r->bytes, bytes),
           number_text(r->tensors, tensors), number_text(r->ranks, ranks),
           age_text(r->written, age));
}

static json_t *number_json(int64_t value) { return value < 0 ? json_null() : json_integer(value); }

static json_t *row_json(const row *r) {
    int64_t age = r->written < 0 ? -1 : (int64_t)difftime(time(NULL), r->written);
    if (r->written >= 0 && age < 0) age = 0;
    return json_pack("{s:s, s:I, s:s, s:s?, s:I, s:o, s:o, s:o}", "name", r->step->name, "step",
                     (json_int_t)r->step->step, "state", r->state, "layout", r->layout, "bytes",
                     (json_int_t)r->bytes, "tensors", number_json(r->tensors), "ranks",
                     number_json(r->ranks), "age_s", number_json(age));
}

static void list(dcp_comm *self, const char *dir, const dcp_step *steps, size_t n, int json) {
    json_t *rows = json_array();
    if (!json && n)
        printf("%-30s %-10s %-8s %10s %8s %6s %8s\n", "step", "state", "layout", "size", "tensors",
               "ranks", "age");
    for (size_t i = 0; i < n; i++) {
        row r = describe(self, dir, &steps[i]);
        if (json)
            json_array_append_new(rows, row_json(&r));
        else
            print_row(&r);
    }
    if (json)
        inspect_print_json(json_pack("{s:s, s:O}", "dir", dir, "steps", rows));
    else if (n == 0)
        cli_note("%s: holds no steps", dir);
    json_decref(rows);
}

int inspect_ls(int argc, char **argv) {
    int json = 0;
    const cli_option options[] = {{"json", NULL, "print one JSON object", NULL, &json}, {0}};
    const cli_program program = {
        "dcp-inspect", "ls DIR [--json]",
        "Lists the steps of a checkpoint directory: complete ones, partial ones (being written, "
        "or\n"
        "left by a killed writer), abandoned ones (set aside by a run that went back).",
        options};
    char **args;
    int n, status = cli_parse(&program, argc, argv, 1, 1, &args, &n);
    if (status >= 0) return status;
    struct stat st;
    if (stat(args[0], &st)) return cli_fail_errno("cannot open", args[0]);
    if (!S_ISDIR(st.st_mode) || strlen(args[0]) >= PATH_MAX)
        return cli_fail(CLI_USAGE, "%.200s: not a folder", args[0]);
    dcp_error err = {0};
    dcp_comm *self;
    dcp_step *steps;
    size_t count;
    if (dcp_comm_self(&self, &err)) return cli_report(&err);
    status = dcp_steps_list(args[0], &steps, &count, &err) ? cli_report(&err) : 0;
    if (status == 0) {
        list(self, args[0], steps, count, json);
        free(steps);
    }
    dcp_comm_destroy(self);
    return status;
}
