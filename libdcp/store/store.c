/* What can be said of an open store without looking into its directory. */
#include "store/store.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "io/look.h"
#include "io/publish.h"

int store_leads(const dcp_store *store) { return store->comm->rank == store->leader; }

int store_is_own(const dcp_store *store) { return store->process == getpid(); }

void store_settle(dcp_store *store) {
    store_attachment *a = store->attachment;
    if (a && a->settle) a->settle(a);
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

int store_has(const dcp_store *store, const char *name, int *is_there, dcp_error *err) {
    const int status = io_look(store->dir_fd, name, NULL, err);
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
    store_settle(store);
    store->continue_from = step;
    store->back_number = store->save_number;
    store->abandon_pending = 1;
    if (store->newest_intact > step) store->has_intact = 0; /* it is set aside */
    return DCP_OK;
}

int dcp_store_mark_intact(dcp_store *store, uint64_t step, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_store_mark_intact: store is NULL");
    store_settle(store);
    store->newest_intact = step;
    store->has_intact = 1;
    return DCP_OK;
}
