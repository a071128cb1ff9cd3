/* Names processors and kernels, and detects a change of either. */
#include "state/provenance.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "ranks/log.h"
#include <dcp/checkpoint.h>
#include <dcp/store.h>

enum { NAME_BYTES = 256, KINDS = 2 };

static const char *const kinds[KINDS] = {"kernels", "processor"};

/* Reads "model name" from /proc/cpuinfo, if it exists. */
static void processor_name(char *out, size_t size) {
    snprintf(out, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) return;
    char line[512];
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(out, size, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1);
        memmove(out, out + strspn(out, " "), strlen(out + strspn(out, " ")) + 1);
        break;
    }
    fclose(file);
}

static int compare_names(const void *a, const void *b) { return strcmp(a, b); }

/* Returns the list of distinct names. Sorts `names`. */
static json_t *distinct_names(char (*names)[NAME_BYTES], size_t n) {
    json_t *list = json_array();
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            json_array_append_new(list, json_string(names[i]));
    if (json_array_size(list) != 1) return list;
    json_t *only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

/* Warns if ranks have different names. names[i] is the name of rank i, so the names must not be
 * sorted yet. */
static void warn_unlike(const char *kind, char (*names)[NAME_BYTES], int world) {
    for (int r = 1; r < world; r++) {
        if (strcmp(names[r], names[0]) == 0) continue;
        ranks_warn(0,
                   "ranks differ: the %s of rank 0 is \"%s\", that of rank %d is \"%s\": the last "
                   "digits of results depend on which rank computes what",
                   kind, names[0], r, names[r]);
        return;
    }
}

/* Rank 0 only. Adds the member `kind`, which contains the names of all ranks. */
static int add_kind(json_t *members, const char *kind, char (*names)[NAME_BYTES], int world) {
    warn_unlike(kind, names, world);
    return json_object_set_new(members, kind, distinct_names(names, (size_t)world));
}

static int make_members(MPI_Comm comm, const char *kernels, char (*names)[NAME_BYTES],
                        json_t *members) {
    char own[KINDS][NAME_BYTES] = {{0}};
    int rank, world, failed = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    snprintf(own[0], NAME_BYTES, "%s", kernels);
    processor_name(own[1], NAME_BYTES);
    for (int i = 0; i < KINDS; i++) {
        MPI_Gather(own[i], NAME_BYTES, MPI_CHAR, names, NAME_BYTES, MPI_CHAR, 0, comm);
        if (rank == 0) failed |= add_kind(members, kinds[i], names, world);
    }
    return failed;
}

/* Sends rank 0's object to all ranks. */
static int share_members(MPI_Comm comm, int rank, json_t **members, dcp_error *err) {
    char *text = rank == 0 ? core_json_text(*members, JSON_COMPACT) : NULL;
    uint64_t bytes = text ? strlen(text) + 1 : 0;
    MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, comm);
    if (rank != 0) text = malloc(bytes + 1);
    int status = ranks_agree(comm, text && bytes ? DCP_OK : core_fail_memory(err, bytes), err);
    if (status == DCP_OK) {
        MPI_Bcast(text, (int)bytes, MPI_CHAR, 0, comm);
        json_decref(*members);
        *members = core_json_read(text, strlen(text), NULL);
        status = ranks_agree(comm, *members ? DCP_OK : core_fail_memory(err, bytes), err);
    }
    free(text);
    return status;
}

int state_provenance_gather(MPI_Comm comm, const char *kernels, json_t **out, dcp_error *err) {
    int rank, world;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    char(*names)[NAME_BYTES] = rank == 0 ? calloc((size_t)world, sizeof *names) : NULL;
    json_t *members = json_object();
    int failed = !members || (rank == 0 && !names);
    int status = ranks_agree(comm, failed ? core_fail_memory(err, 0) : DCP_OK, err);
    if (status == DCP_OK) {
        failed = make_members(comm, kernels, names, members);
        status = ranks_agree(comm, failed ? core_fail_memory(err, 0) : DCP_OK, err);
    }
    if (status == DCP_OK) status = share_members(comm, rank, &members, err);
    free(names);
    if (status == DCP_OK)
        *out = members;
    else
        json_decref(members);
    return status;
}

static void compare_kind(const json_t *about, const char *kind, const json_t *here) {
    const json_t *there = json_object_get(about, kind), *now = json_object_get(here, kind);
    if (!json_is_string(there) && !json_is_array(there)) {
        ranks_warn(0,
                   "about.json does not name the %s of the checkpoint, so it is unknown whether "
                   "this run computes the same bits",
                   kind);
        return;
    }
    if (json_equal(there, now)) return;
    char *was = json_dumps(there, JSON_ENCODE_ANY), *is = json_dumps(now, JSON_ENCODE_ANY);
    ranks_warn(
        0,
        "the checkpoint was computed with %s %s, but this run uses %s: results may differ in their "
        "last digits",
        kind, was ? was : "", is ? is : "");
    free(was);
    free(is);
}

/* Returns true if the step was imported, not computed by training. */
static bool is_import(const json_t *about) {
    const char *tool = json_string_value(json_object_get(about, "tool"));
    return tool && strcmp(tool, "dcp-import") == 0;
}

static void compare_evaluation(const json_t *about, const json_t *here) {
    const json_t *there = json_object_get(about, STATE_EVAL_DATA);
    const json_t *now = json_object_get(here, STATE_EVAL_DATA);
    if (there && now && !json_equal(there, now))
        ranks_warn(0, "data.eval_path has other samples than when the checkpoint was saved: "
                      "evaluations before and after the checkpoint cannot be compared");
}

void state_provenance_compare(const char *step_path, const json_t *here) {
    char *text;
    const int status = dcp_about_read(step_path, &text, NULL);
    if (status != DCP_OK) {
        ranks_warn(0,
                   "%s/about.json is %s: cannot tell whether this processor computes the same bits",
                   step_path,
                   status == DCP_ERR_NOT_FOUND ? "missing"
                   : status == DCP_ERR_CORRUPT ? "damaged"
                                               : "unreadable");
        return;
    }
    json_t *about = core_json_read(text, strlen(text), NULL);
    for (int i = 0; i < KINDS && !is_import(about); i++) compare_kind(about, kinds[i], here);
    compare_evaluation(about, here);
    json_decref(about);
    free(text);
}

int state_provenance_name(const char *step_path, const char *key, char out[STATE_RUN_BYTES],
                          dcp_error *err) {
    char *text = NULL;
    json_t *about = NULL;
    int status = dcp_about_read(step_path, &text, err);
    if (status == DCP_OK) status = core_json_parse_object(text, strlen(text), &about, err);
    const char *name = json_string_value(json_object_get(about, key));
    const bool is_name = name && strlen(name) == STATE_RUN_BYTES - 1 &&
                         strspn(name, "0123456789abcdef") == STATE_RUN_BYTES - 1;
    snprintf(out, STATE_RUN_BYTES, "%s", is_name ? name : "");
    json_decref(about);
    free(text);
    return status;
}

void state_provenance_init(const char *step_path, char out[STATE_INIT_BYTES]) {
    char *text = NULL;
    json_t *about = NULL;
    if (dcp_about_read(step_path, &text, NULL) == DCP_OK)
        about = core_json_read(text, strlen(text), NULL);
    const char *init = json_string_value(json_object_get(about, STATE_INIT));
    snprintf(out, STATE_INIT_BYTES, "%s", init ? init : "");
    json_decref(about);
    free(text);
}

void state_provenance_copy_results(MPI_Comm comm, const char *step_path, json_t *here) {
    static const char *const keys[] = {STATE_LOSS, STATE_EVAL_LOSS, STATE_EVAL_ACCURACY};
    double values[] = {NAN, NAN, NAN};
    char *text = NULL;
    json_t *about = NULL;
    int rank;
    MPI_Comm_rank(comm, &rank);
    if (rank == 0 && dcp_about_read(step_path, &text, NULL) == DCP_OK)
        about = core_json_read(text, strlen(text), NULL);
    const bool is_comparable =
        json_equal(json_object_get(about, STATE_EVAL_DATA), json_object_get(here, STATE_EVAL_DATA));
    for (size_t i = 0; i < 3; i++) {
        const json_t *value = json_object_get(about, keys[i]);
        if (json_is_number(value) && (i == 0 || is_comparable))
            values[i] = json_number_value(value);
    }
    MPI_Bcast(values, 3, MPI_DOUBLE, 0, comm);
    for (size_t i = 0; i < 3; i++)
        if (isnan(values[i]) || json_object_set_new(here, keys[i], json_real(values[i])))
            json_object_del(here, keys[i]);
    json_decref(about);
    free(text);
}

void state_provenance_run(const char *step_path, char name[STATE_RUN_BYTES]) {
    char dir[PATH_MAX], path[PATH_MAX];
    dcp_step *steps;
    size_t n;
    const char *slash = strrchr(step_path, '/');
    const int length = slash ? (int)(slash - step_path) : 0;
    state_provenance_name(step_path, STATE_RUN, name, NULL);
    if (*name || !length || length >= PATH_MAX) return;
    snprintf(dir, sizeof dir, "%.*s", length, step_path);
    if (dcp_steps_list(dir, &steps, &n, NULL) != DCP_OK) return;
    while (!*name && n-- > 0)
        if (steps[n].kind == DCP_STEP_COMPLETE &&
            snprintf(path, sizeof path, "%s/%s", dir, steps[n].name) < (int)sizeof path)
            state_provenance_name(path, STATE_RUN, name, NULL);
    free(steps);
}
