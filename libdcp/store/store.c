#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "io/entries.h"
#include "io/publish.h"

static bool says(store_rewind a, store_rewind b) { return a.to <= b.to && a.number >= b.number; }

bool store_lineage_has(const store_lineage *lineage, store_rewind past) {
    for (uint64_t i = 0; i < lineage->n; i++)
        if (says(lineage->rewinds[i], past)) return true;
    return false;
}

void store_lineage_add(store_lineage *lineage, store_rewind past) {
    if (!past.number || past.to > INT64_MAX || store_lineage_has(lineage, past)) return;
    store_rewind list[STORE_MAX_REWINDS + 1];
    size_t n = 0;
    for (uint64_t i = 0; i < lineage->n; i++)
        if (!says(past, lineage->rewinds[i])) list[n++] = lineage->rewinds[i];
    size_t at = n++;
    for (; at > 0 && list[at - 1].number > past.number; at--) list[at] = list[at - 1];
    list[at] = past;
    const size_t dropped = n > STORE_MAX_REWINDS;
    lineage->n = n - dropped;
    memcpy(lineage->rewinds, list + dropped, lineage->n * sizeof *list);
}

void store_lineage_update(store_lineage *lineage, const store_lineage *other) {
    if (other->id && (!lineage->id || other->last > lineage->last)) *lineage = *other;
}

store_rewind store_lineage_divergence(const store_lineage *lineage, const store_lineage *branch) {
    const bool has_dropped = lineage->n == STORE_MAX_REWINDS;
    for (uint64_t i = 0; i < branch->n && branch->id == lineage->id; i++) {
        const store_rewind past = branch->rewinds[i];
        const bool may_be_dropped = has_dropped && past.number < lineage->rewinds[0].number;
        if (!may_be_dropped && !store_lineage_has(lineage, past)) return past;
    }
    return (store_rewind){0, 0};
}

void store_lineage_read(store_lineage *lineage, const json_t *about, uint64_t number) {
    const char *id = json_string_value(json_object_get(about, "lineage"));
    json_t *pair;
    size_t i;
    *lineage = (store_lineage){.last = number};
    if (!id || strlen(id) != 16) return;
    lineage->id = strtoull(id, NULL, 16);
    json_array_foreach(json_object_get(about, "back"), i, pair) {
        const json_int_t to = json_integer_value(json_array_get(pair, 0));
        const json_int_t before = json_integer_value(json_array_get(pair, 1));
        if (to >= 0 && before > 0)
            store_lineage_add(lineage, (store_rewind){(uint64_t)to, (uint64_t)before});
    }
}

int store_lineage_describe(const store_lineage *lineage, json_t *about) {
    json_t *back = lineage->n ? json_array() : NULL;
    int failed = json_object_set_new(about, "lineage", json_sprintf("%016" PRIx64, lineage->id));
    for (uint64_t i = 0; i < lineage->n && back; i++)
        failed |=
            json_array_append_new(back, json_pack("[I, I]", (json_int_t)lineage->rewinds[i].to,
                                                  (json_int_t)lineage->rewinds[i].number));
    if (lineage->n) failed |= json_object_set_new(about, "back", back);
    return failed ? -1 : 0;
}

/* Functions of an open store; most of them do not access its directory. */

bool store_leads(const dcp_store *store) { return store->comm->rank == store->leader; }

bool store_is_own(const dcp_store *store) { return store->process == getpid(); }

int store_check_own(const dcp_store *store, dcp_error *err) {
    return store_lock_check_opener(store->dir, store->process, err);
}

void store_wait_for_save(dcp_store *store) {
    store_attachment *a = store->attachment;
    if (a && a->wait) a->wait(a);
}

void store_log(const dcp_store *store, dcp_log_level level, const char *fmt, ...) {
    if (!store->options.log) return;
    char line[sizeof((dcp_error *)0)->message];
    va_list args;
    va_start(args, fmt);
    core_format(line, sizeof line, fmt, args);
    va_end(args);
    store->options.log(store->options.log_ctx, level, line);
}

int store_fail_errno(const dcp_store *store, const char *what, const char *name, dcp_error *err) {
    char path[PATH_MAX];
    int code = errno;
    snprintf(path, sizeof path, "%s/%s", store->dir, name);
    errno = code;
    return core_fail_errno(err, what, path);
}

int store_fail_entry(const dcp_store *store, const char *name, int status, dcp_error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", store->dir, name);
    return core_fail_path(status, path, err);
}

int store_fail_foreign(const dcp_store *store, const char *name, dcp_error *err) {
    return store_fail_entry(store, name,
                            core_fail(err, DCP_ERR_STATE,
                                      "%s/%s has none of the files of a step, so it is no step of "
                                      "this store, and stays: move it away",
                                      store->dir, name),
                            err);
}

int store_has(const dcp_store *store, const char *name, bool *is_there, dcp_error *err) {
    const int status = io_stat(store->dir_fd, name, NULL, err);
    *is_there = status == DCP_OK;
    if (status == DCP_ERR_NOT_FOUND) return DCP_OK;
    return store_fail_entry(store, name, status, err);
}

int store_sync(const dcp_store *store, dcp_error *err) {
    return io_publish_sync(store->dir_fd) ? core_fail_errno(err, "cannot sync", store->dir)
                                          : DCP_OK;
}

int dcp_store_continue_from(dcp_store *store, uint64_t step, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_store_continue_from: store is NULL");
    store_wait_for_save(store);
    store->continue_from = step;
    store->back_number = store->save_number;
    store->abandon_pending = true;
    if (store->newest_intact > step) store->has_intact = false; /* it is set aside */
    return DCP_OK;
}

int dcp_store_mark_intact(dcp_store *store, uint64_t step, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_store_mark_intact: store is NULL");
    store_wait_for_save(store);
    store->newest_intact = step;
    store->has_intact = true;
    return DCP_OK;
}
