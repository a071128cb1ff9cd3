/* Removing a step that the caller names.
 *
 * All nodes claim it first, so that no reader holds it on any. It goes into the writer's folder
 * under its own name then, from where it comes back: at once, where that fails on some node, or by
 * the next writer, where this one is killed. When it has lost its name on all nodes, it becomes
 * what is being removed, and whoever comes next completes that. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "plan/agreement.h"
#include "step/hold.h"
#include "step/list.h"
#include "store/directory.h"
#include "store/lock.h"
#include "store/publication.h"
#include "store/retention.h"
#include "store/writer_folder.h"

/* A step on its way out, in a leader's directory. */
typedef struct removal {
    uint64_t step;
    char name[64], aside[STORE_WRITER_FOLDER_PATH], old[NAME_MAX + 1];
    int is_there, is_aside, was_latest;
    io_unshared *claim;
} removal;

static int fail_kept(const dcp_store *store, const char *name, const char *why, dcp_error *err) {
    return store_fail_entry(
        store, name, core_fail(err, DCP_ERR_BUSY, "%s/%s stays: %s", store->dir, name, why), err);
}

static int fail_held(const dcp_store *store, const char *name, dcp_error *err) {
    return fail_kept(store, name, "a program has it open or pinned: remove it when that has ended",
                     err);
}

static int fail_missing(const dcp_store *store, const removal *r, dcp_error *err) {
    return store_fail_entry(
        store, r->name, core_fail(err, DCP_ERR_NOT_FOUND, "%s holds no %s", store->dir, r->name),
        err);
}

/* What this rank knows without looking. */
static int check_wanted(const dcp_store *store, const removal *r, dcp_error *err) {
    if (store_is_pinned(store, r->step))
        return fail_kept(store, r->name, "it is being copied into another store", err);
    if (!store->has_intact || store->newest_intact != r->step) return DCP_OK;
    return store_fail_entry(
        store, r->name,
        core_fail(err, DCP_ERR_STATE,
                  "%s/%s stays: it is the newest step known to be intact, the one that the next "
                  "start can rely on: save another one first, or load another one and mark "
                  "it as intact",
                  store->dir, r->name),
        err);
}

static int find_named(const dcp_store *store, removal *r, dcp_error *err) {
    int status = store_lock_check(store->lock, err);
    if (status) return status;
    status = store_has(store, r->name, &r->is_there, err);
    if (status) return status;
    if (!r->is_there || step_hold_claim(store->dir_fd, r->name, &r->claim)) return DCP_OK;
    return fail_held(store, r->name, err);
}

static int take_aside(dcp_store *store, removal *r, dcp_error *err) {
    if (!r->is_there) return DCP_OK;
    int status = store_lose_name(store, r->name, r->aside, err);
    r->is_aside = !store_directory_has(store->dir_fd, r->name);
    return status;
}

/* Where the store has been lost, its next writer does that. */
static void give_back(const dcp_store *store, removal *r) {
    if (!r->is_aside || renameat(store->dir_fd, r->aside, store->dir_fd, r->name)) return;
    store_sync(store, NULL);
    if (r->was_latest) store_point_latest(store, r->step);
}

/* The step is none of the store's any more. */
static int finish_removal(dcp_store *store, removal *r, dcp_error *err) {
    char start[STORE_WRITER_FOLDER_PATH];
    if (!r->is_aside) return DCP_OK;
    store_writer_folder_entry(store, STORE_WRITER_OLD, start);
    store_directory_free_name(store->dir_fd, start, r->name, r->old);
    int status = store_lose_name(store, r->aside, r->old, err);
    r->is_aside = store_directory_has(store->dir_fd, r->aside);
    return status;
}

/* Collective where there are several nodes: DIR/latest does not lead to the step. */
static int leave_latest(dcp_store *store, removal *r, dcp_error *err) {
    char target[NAME_MAX + 1] = "";
    dcp_step *steps;
    size_t n;
    uint64_t newest = UINT64_MAX;
    int found;
    int status = store_newest(store, &steps, &n, &newest, &found, err);
    free(steps);
    if (status || !store_leads(store)) return status;
    ssize_t length = readlinkat(store->dir_fd, "latest", target, sizeof target - 1);
    r->was_latest = length > 0 && !strcmp(target, r->name);
    if (!r->was_latest) return DCP_OK;
    if (found)
        store_point_latest(store, newest);
    else
        store_drop_latest(store);
    return DCP_OK;
}

/* Collective: all or nothing, but for a failure in the last step on some node. */
static int take_from_all(dcp_store *store, removal *r, dcp_error *err) {
    const int leads = store_leads(store);
    int status = comm_agree(store->comm, leads ? take_aside(store, r, err) : DCP_OK, err);
    if (!status) status = comm_agree(store->comm, leave_latest(store, r, err), err);
    if (!status)
        status = comm_agree(store->comm, leads ? finish_removal(store, r, err) : DCP_OK, err);
    if (status && leads) give_back(store, r);
    return status;
}

static int remove_step_named(dcp_store *store, removal *r, dcp_error *err) {
    const int leads = store_leads(store);
    dcp_error why;
    int status = comm_agree(store->comm, leads ? find_named(store, r, err) : DCP_OK, err);
    uint64_t is_there = (uint64_t)r->is_there;
    if (!status) status = comm_allreduce(store->comm, &is_there, 1, DCP_REDUCE_MAX, err);
    if (!status && !is_there) status = comm_agree(store->comm, fail_missing(store, r, err), err);
    if (!status) status = take_from_all(store, r, err);
    if (!status && r->old[0] && store_remove_trash(store, r->old, &why))
        store_log(store, DCP_LOG_WARNING, "a removed step's files stay: %s", why.message);
    return status;
}

int dcp_step_remove(dcp_store *store, uint64_t step, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_step_remove: store is NULL");
    if (!store_is_own(store))
        return core_fail_at(err, DCP_ERR_STATE, store->dir,
                            "was opened by process %ld, of which this one is a fork: each process "
                            "opens its own stores",
                            (long)store->process);
    removal r = {.step = step};
    const plan_value value = {"the step to remove", step, 0};
    store_settle(store);
    step_name_write(r.name, "", step);
    store_writer_folder_entry(store, r.name, r.aside);
    int status = plan_same(store->comm, &value, 1, err);
    if (!status) status = comm_agree(store->comm, check_wanted(store, &r, err), err);
    if (!status && (status = remove_step_named(store, &r, err)))
        status = store_find_cause(store, status, err); /* another writer may be why */
    step_hold_unclaim(r.claim);
    if (!status && store->has_unread && store->unread == step) store->has_unread = 0;
    return status;
}
