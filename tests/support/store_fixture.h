/* A store in a scratch folder, steps as a save would publish them, and functions that examine the
 * result. The group's set-up and tear-down make and remove the folder. */
#ifndef TESTS_UNIT_STORE_FIXTURE_H
#define TESTS_UNIT_STORE_FIXTURE_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "dcp/dcp.h"
#include "store/directory.h"
#include "store/publication.h"
#include "store/retention.h"

struct scratch {
    char root[64]; /* removed at the end */
    char dir[80];  /* the store, not made yet */
    dcp_comm *comm;
    char log[8192]; /* what the store logged, one message per line */
};

static inline int scratch_make(void **state) {
    struct scratch *s = calloc(1, sizeof *s);
    snprintf(s->root, sizeof s->root, "/tmp/dcp-store-XXXXXX");
    if (!mkdtemp(s->root)) return -1;
    snprintf(s->dir, sizeof s->dir, "%s/store", s->root);
    *state = s;
    return dcp_comm_self(&s->comm, NULL);
}

static inline int scratch_remove(void **state) {
    struct scratch *s = *state;
    store_directory_remove(AT_FDCWD, s->root);
    dcp_comm_destroy(s->comm);
    free(s);
    return 0;
}

#define scratch_test(f) cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)

static inline void keep_line(void *ctx, dcp_log_level level, const char *line) {
    struct scratch *s = ctx;
    (void)level;
    size_t used = strlen(s->log);
    snprintf(s->log + used, sizeof s->log - used, "%s\n", line);
}

static inline dcp_store *open_store(struct scratch *s, uint32_t keep, int replace) {
    dcp_store_options options = {
        .size = sizeof options, .keep = keep, .replace = replace, .log = keep_line, .log_ctx = s};
    dcp_store *store = NULL;
    dcp_error err = {0};
    if (dcp_store_open(s->comm, s->dir, &options, &store, &err) != DCP_OK)
        fail_msg("%s", err.message);
    return store;
}

static inline void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Applies retention after that step, the newest one. */
static inline int retain_after(dcp_store *store, uint64_t step) {
    store_retention kept = {.is_listed = true};
    store_retain_list(store, &kept);
    int status = store_retain(store, step, &kept, NULL);
    free(kept.steps);
    return status;
}

static inline int finish_and_publish(dcp_store *store, uint64_t step, const char *members_json,
                                     dcp_error *err) {
    int status = store_finish(store, step, members_json, err);
    return status != DCP_OK ? status : store_publish(store, step, err);
}

/* Publishes a step whose file contains `text`. */
static inline int publish(dcp_store *store, uint64_t step, const char *text, dcp_error *err) {
    char tmp[PATH_MAX], file[PATH_MAX + 16];
    int status = store_begin(store, step, tmp, err);
    if (status != DCP_OK) return status;
    snprintf(file, sizeof file, "%s/state.h5", tmp);
    write_text(file, text);
    return finish_and_publish(store, step, NULL, err);
}

static inline void publish_all(dcp_store *store, uint64_t from, uint64_t to) {
    dcp_error err = {0};
    for (uint64_t step = from; step <= to; step++)
        if (publish(store, step, "state", &err) != DCP_OK) fail_msg("%s", err.message);
}

static inline int has(const struct scratch *s, const char *name) {
    char path[200];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    return lstat(path, &st) == 0;
}

/* Checks which steps exist, written as "c3 p4 a5" (complete, partial, abandoned), in the list's
 * order. */
static inline void assert_steps(const struct scratch *s, const char *expected) {
    dcp_step *steps;
    size_t n;
    char found[1024] = "";
    assert_int_equal(dcp_steps_list(s->dir, &steps, &n, NULL), DCP_OK);
    for (size_t i = 0; i < n; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%c%llu", i ? " " : "",
                 "cpa"[steps[i].kind], (unsigned long long)steps[i].step);
    free(steps);
    assert_string_equal(found, expected);
}

static inline void assert_content(const struct scratch *s, const char *name, const char *expected) {
    char path[200], text[64] = "";
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, expected);
}

#endif
