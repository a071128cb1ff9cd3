/* The store object: opened by all ranks, each directory touched by its leader alone, which holds
 * the lock for as long as the store is open. Other ranks know the directory's absolute path only. A
 * shared store is a private one with a single node. */
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "redundancy/redundancy.h"
#include "store/folder.h"
#include "store/nodes.h"
#include "store/spare.h"

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
    return core_fail_errno(err, what, strcmp(name, ".") == 0 ? store->dir : path);
}

static int is_left_over(const char *name) {
    return strncmp(name, ".tmp-", 5) == 0 || strncmp(name, ".trash-", 7) == 0;
}

void store_clean(dcp_store *store) {
    DIR *stream = opendir(store->dir);
    if (!stream) return;
    struct dirent *entry;
    dcp_error err;
    while ((entry = readdir(stream))) {
        if (!is_left_over(entry->d_name)) continue;
        if (folder_remove(store->dir_fd, entry->d_name) == 0) {
            store_log(store, DCP_LOG_INFO, "removed %s/%s, which a killed writer left", store->dir,
                      entry->d_name);
        } else {
            store_fail_errno(store, "cannot remove", entry->d_name, &err);
            store_log(store, DCP_LOG_WARNING, "a killed writer's rest stays: %s", err.message);
        }
    }
    closedir(stream);
}

static dcp_store *allocate(dcp_comm *comm, const dcp_store_options *options) {
    dcp_store *store = calloc(1, sizeof *store);
    if (!store) return NULL;
    store->comm = comm;
    store->dir_fd = store->lock_fd = -1;
    store->nodes = 1;
    if (options) store->options = *options;
    store->options.redundancy = NULL;
    store->options.tool = strdup(options && options->tool ? options->tool : "libdcp");
    store->dir = calloc(1, PATH_MAX);
    if (store->options.tool && store->dir) return store;
    dcp_store_close(store);
    return NULL;
}

int store_leads(const dcp_store *store) { return store->comm->rank == store->leader; }

static int open_directory(dcp_store *store, const char *dir, dcp_error *err) {
    if (!store->options.private_dirs && store->comm->rank != 0) return DCP_OK;
    if (!dir) return core_fail(err, DCP_ERR_ARG, "dcp_store_open: dir is NULL");
    return folder_open(dir, &store->dir_fd, store->dir, err);
}

/* Leaders of nodes that are one directory after all, seen from several hosts, meet at its lock. */
static int take_directory(dcp_store *store, dcp_error *err) {
    if (!store_leads(store)) {
        if (store->dir_fd >= 0) close(store->dir_fd);
        store->dir_fd = -1;
        return DCP_OK;
    }
    dcp_error why;
    int status = store_lock(store->dir_fd, store->dir, &store->lock_fd, &why);
    if (status == DCP_ERR_BUSY && store->nodes > 1)
        return core_fail(err, status, "%s; a private store needs a directory of its own a node",
                         why.message);
    if (status != DCP_OK) return core_fail(err, status, "%s", why.message);
    store_clean(store);
    return DCP_OK;
}

static int read_redundancy(const dcp_store *store, const char *text, redundancy_spec *spec,
                           dcp_error *err) {
    int status = redundancy_parse(text, spec, err);
    if (status == DCP_OK && spec->kind != REDUNDANCY_NONE && !store->options.private_dirs)
        status = core_fail(err, DCP_ERR_ARG,
                           "redundancy \"%s\" is for private stores (private_dirs): a shared one "
                           "is not lost with a node",
                           text);
    return status;
}

/* What all ranks of a private store act upon together has to be the same on all of them. */
static int agree_on_options(dcp_store *store, const redundancy_spec *spec, dcp_error *err) {
    uint64_t is_private = store->options.private_dirs != 0;
    uint64_t keep = is_private ? store->options.keep : 0;
    uint64_t redundancy = (uint64_t)spec->kind << 32 | (uint64_t)spec->lost;
    uint64_t most[6] = {is_private, ~is_private, keep, ~keep, redundancy, ~redundancy};
    int status = comm_allreduce(store->comm, most, 6, DCP_REDUCE_MAX, err);
    if (status != DCP_OK) return status;
    if (most[0] != ~most[1])
        return core_fail(err, DCP_ERR_MISMATCH,
                         "dcp_store_open: private_dirs is set on some ranks and not on others");
    if (most[2] != ~most[3])
        return core_fail(err, DCP_ERR_MISMATCH,
                         "dcp_store_open: ranks passed different values for keep: from %llu to "
                         "%llu",
                         (unsigned long long)~most[3], (unsigned long long)most[2]);
    if (most[4] != ~most[5])
        return core_fail(err, DCP_ERR_MISMATCH,
                         "dcp_store_open: ranks passed different values for redundancy");
    return DCP_OK;
}

static int open_store(dcp_store *store, const char *dir, const char *redundancy, dcp_error *err) {
    dcp_comm *comm = store->comm;
    redundancy_spec spec = {REDUNDANCY_NONE, 0};
    int status = comm_agree(comm, read_redundancy(store, redundancy, &spec, err), err);
    if (status == DCP_OK) status = agree_on_options(store, &spec, err);
    if (status == DCP_OK) status = comm_agree(comm, open_directory(store, dir, err), err);
    if (status == DCP_OK && store->options.private_dirs)
        status = nodes_find(comm, store->dir_fd, store->dir, &store->leader, &store->nodes, err);
    if (status == DCP_OK && spec.kind != REDUNDANCY_NONE)
        status =
            redundancy_groups_collect(comm, &spec, (uint64_t)store->leader, &store->groups, err);
    if (status == DCP_OK) status = comm_agree(comm, take_directory(store, err), err);
    if (status == DCP_OK && !store->options.private_dirs)
        status = comm_broadcast(comm, store->dir, PATH_MAX, 0, err);
    return status;
}

int dcp_store_open(dcp_comm *comm, const char *dir, const dcp_store_options *options,
                   dcp_store **out, dcp_error *err) {
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_store_open: comm is NULL");
    dcp_store *store = allocate(comm, options);
    int status = store ? DCP_OK : core_fail_memory(err, PATH_MAX + sizeof *store);
    if (!out) status = core_fail(err, DCP_ERR_ARG, "dcp_store_open: out is NULL");
    status = comm_agree(comm, status, err);
    if (status == DCP_OK)
        status = open_store(store, dir, options ? options->redundancy : NULL, err);
    if (status != DCP_OK) {
        dcp_store_close(store);
        return status;
    }
    *out = store;
    return DCP_OK;
}

void store_settle(dcp_store *store) {
    store_attachment *a = store->attachment;
    if (a && a->settle) a->settle(a);
}

void dcp_store_close(dcp_store *store) {
    if (!store) return;
    store_settle(store);
    if (store->attachment) store->attachment->free(store->attachment);
    spare_drop(store);
    if (store->lock_fd >= 0) close(store->lock_fd);
    if (store->dir_fd >= 0) close(store->dir_fd);
    redundancy_groups_free(store->groups);
    free((char *)store->options.tool);
    free(store->dir);
    free(store);
}

int dcp_store_continue_from(dcp_store *store, uint64_t step, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_store_continue_from: store is NULL");
    store_settle(store);
    store->continue_from = step;
    store->abandon_pending = 1;
    return DCP_OK;
}

int dcp_store_mark_intact(dcp_store *store, uint64_t step, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_store_mark_intact: store is NULL");
    store_settle(store);
    store->newest_intact = step;
    store->has_intact = 1;
    return DCP_OK;
}
