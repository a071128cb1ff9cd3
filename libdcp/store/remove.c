/* Removing a step that the caller names.
 *
 * 1. All nodes claim the step, so no reader holds it on any node.
 * 2. Each node moves the step into the writer's folder, where it keeps its own name. If this fails
 *    on some node, all nodes move it back; if this writer is killed, the next writer does so.
 * 3. Once the step has been moved on all nodes, it is renamed to `old-...`, the name of an entry
 *    that is being removed. If the removal is interrupted, the next writer completes it. */
#include "store/remove.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/fail.h"
#include "format/folder.h"
#include "format/hold.h"
#include "store/directory.h"
#include "store/lock.h"
#include "store/publication.h"
#include "store/retention.h"

/* A step that is being removed, in a leader's directory. */
typedef struct removal {
    uint64_t step;
    char name[64], aside[STORE_WRITER_FOLDER_PATH], old[NAME_MAX + 1];
    bool is_there, is_aside, was_latest;
    io_lock_file *claim;
} removal;

static int fail_kept(const dcp_store *store, const char *name, const char *why, dcp_error *err) {
    return store_fail_entry(
        store, name, core_fail(err, DCP_ERR_BUSY, "%s/%s stays: %s", store->dir, name, why), err);
}

static int fail_held(const dcp_store *store, const char *name, dcp_error *err) {
    return fail_kept(store, name,
                     "a program has it open or pinned: remove the step when that program has ended",
                     err);
}

static int fail_missing(const dcp_store *store, const removal *r, dcp_error *err) {
    return store_fail_entry(
        store, r->name, core_fail(err, DCP_ERR_NOT_FOUND, "%s holds no %s", store->dir, r->name),
        err);
}

/* Checks what this rank can check without access to the directory. */
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
    bool is_foreign = false;
    if (!status && r->is_there)
        status = format_folder_is_foreign(store->dir_fd, r->name, store->dir, &is_foreign, err);
    if (status) return status;
    r->is_there &= !is_foreign;
    if (!r->is_there || format_hold_claim(store->dir_fd, r->name, &r->claim)) return DCP_OK;
    return fail_held(store, r->name, err);
}

static int take_aside(dcp_store *store, removal *r, dcp_error *err) {
    if (!r->is_there) return DCP_OK;
    int status = store_move_to_writer_folder(store, r->name, r->aside, err);
    r->is_aside = !store_directory_has(store->dir_fd, r->name);
    return status;
}

/* Gives the step its name back after a failure. If this writer has lost the store, the rename
 * fails, and the next writer does this. */
static void give_back(const dcp_store *store, removal *r) {
    if (!r->is_aside || renameat(store->dir_fd, r->aside, store->dir_fd, r->name)) return;
    store_sync(store, NULL);
    if (r->was_latest) store_point_latest(store, r->step);
}

/* Renames the moved step to `old-...`. From then on it no longer belongs to the store. */
static int finish_removal(dcp_store *store, removal *r, dcp_error *err) {
    char start[STORE_WRITER_FOLDER_PATH];
    if (!r->is_aside) return DCP_OK;
    store_writer_folder_entry(store, STORE_WRITER_OLD, start);
    store_directory_free_name(store->dir_fd, start, r->name, r->old);
    int status = store_move_to_writer_folder(store, r->aside, r->old, err);
    r->is_aside = store_directory_has(store->dir_fd, r->aside);
    return status;
}

/* If DIR/latest points to the step, makes it point to another step. Collective if there are several
 * nodes. */
static int leave_latest(dcp_store *store, removal *r, dcp_error *err) {
    char target[NAME_MAX + 1] = "";
    dcp_step *steps;
    size_t n;
    uint64_t newest = UINT64_MAX;
    bool found;
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

/* Collective: removes the step from all nodes or from none, unless finish_removal fails on some
 * node. */
static int take_from_all(dcp_store *store, removal *r, dcp_error *err) {
    const bool leads = store_leads(store);
    int status = comm_agree(store->comm, leads ? take_aside(store, r, err) : DCP_OK, err);
    if (!status) status = comm_agree(store->comm, leave_latest(store, r, err), err);
    if (!status)
        status = comm_agree(store->comm, leads ? finish_removal(store, r, err) : DCP_OK, err);
    if (status && leads) give_back(store, r);
    return status;
}

static int remove_step_named(dcp_store *store, removal *r, dcp_error *err) {
    const bool leads = store_leads(store);
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
    removal r = {.step = step};
    comm_vote v = {0};
    int status = store_check_own(store, err);
    if (status) return status;
    store_wait_for_save(store);
    format_name_write(r.name, "", step);
    store_writer_folder_entry(store, r.name, r.aside);
    comm_vote_same(&v, "the step to remove", step);
    status = comm_vote_run(store->comm, &v, DCP_OK, err);
    if (!status) status = comm_agree(store->comm, check_wanted(store, &r, err), err);
    if (!status && (status = remove_step_named(store, &r, err)))
        status = store_find_cause(store, status, err); /* another writer may be the cause */
    format_hold_unclaim(r.claim);
    if (!status && store->has_unread && store->unread == step) store->has_unread = false;
    return status;
}

/* Making room. A step's turn is its place in the order of removal. Each leader finds the lowest
 * turn in its own directory; the step with the lowest turn of all is removed on all nodes. */

#define STANDS ((uint64_t)1 << 63) /* marks steps that are not set aside: their turn comes last */
#define NO_TURN UINT64_MAX

/* Returns the step's turn, or NO_TURN if it must remain. `newest` is the newest step that all nodes
 * have, not counting steps that are about to be set aside. */
static uint64_t turn_of(const dcp_store *store, const dcp_step *step, uint64_t newest) {
    bool goes_aside = store->abandon_pending && step->step > store->continue_from;
    bool is_intact = store->has_intact && step->step == store->newest_intact;
    if (step->kind == DCP_STEP_ABANDONED) return step->step;
    if (step->kind == DCP_STEP_PARTIAL || is_intact || store_is_pinned(store, step->step))
        return NO_TURN;
    if (goes_aside) return step->step;
    return step->step < newest ? STANDS | step->step : NO_TURN;
}

static uint64_t find_turn(const dcp_store *store, const dcp_step *steps, size_t n, uint64_t newest,
                          uint64_t from) {
    uint64_t first = NO_TURN;
    for (size_t i = 0; i < n; i++) {
        uint64_t turn = turn_of(store, &steps[i], newest);
        if (turn >= from && turn < first && !format_hold_is_held(store->dir_fd, steps[i].name))
            first = turn;
    }
    return first;
}

/* Removes the steps with that turn from this node, except steps that a reader holds. Returns true
 * if any was removed. */
static bool give_up(dcp_store *store, const dcp_step *steps, size_t n, uint64_t newest,
                    uint64_t turn) {
    dcp_error why;
    bool given_up = false;
    for (size_t i = 0; i < n; i++) {
        bool kept;
        if (turn_of(store, &steps[i], newest) != turn) continue;
        if (store_discard_unheld(store, steps[i].name, &kept, &why)) {
            store_log(store, DCP_LOG_WARNING, "an old step stays: %s", why.message);
            continue;
        }
        if (kept) continue;
        store_log(store, DCP_LOG_WARNING, "%s/%s is given up to make room", store->dir,
                  steps[i].name);
        given_up = true;
    }
    return given_up;
}

/* Collective: removes the step with the lowest turn that is at least *from. Sets *from to the turn
 * to continue with, or NO_TURN if no step was left. Sets *made to true if any node has removed a
 * step. */
static int give_up_next(dcp_store *store, const dcp_step *steps, size_t n, uint64_t newest,
                        uint64_t *from, uint64_t *made, dcp_error *err) {
    bool leads = store_leads(store);
    uint64_t turn = leads ? find_turn(store, steps, n, newest, *from) : NO_TURN;
    int status = comm_allreduce(store->comm, &turn, 1, DCP_REDUCE_MIN, err);
    if (status) return status;
    *from = turn == NO_TURN ? NO_TURN : turn + 1;
    if (turn == NO_TURN) return DCP_OK;
    *made = leads && give_up(store, steps, n, newest, turn);
    return comm_allreduce(store->comm, made, 1, DCP_REDUCE_MAX, err);
}

int store_free_space(dcp_store *store, uint64_t *from, int *made, dcp_error *err) {
    dcp_step *steps = NULL;
    size_t n = 0;
    uint64_t newest = store_newest_limit(store), gone = 0;
    bool found;
    int status = store_newest(store, &steps, &n, &newest, &found, err);
    status = comm_agree(store->comm, status, err);
    if (!found) newest = 0;
    while (!status && !gone && *from != NO_TURN)
        status = give_up_next(store, steps, n, newest, from, &gone, err);
    *made = !status && gone;
    free(steps);
    return status;
}

/* Writes "step-..., step-..." for the held steps of this node; "" if none is held. */
static void list_held(const dcp_store *store, char *text, size_t size) {
    dcp_step *steps = NULL;
    size_t n = 0, at = 0;
    text[0] = '\0';
    if (!store_leads(store) || dcp_steps_list(store->dir, &steps, &n, NULL)) return;
    for (size_t i = 0; i < n && at < size; i++)
        if (format_hold_is_held(store->dir_fd, steps[i].name))
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", steps[i].name);
    free(steps);
}

void store_explain_no_space(dcp_store *store, dcp_error *err) {
    char held[256];
    dcp_error longer = *err;
    list_held(store, held, sizeof held);
    if (held[0])
        core_fail_again(&longer, err->status, err, "%s; readers hold %s, which can't be given up",
                        err->message, held);
    longer.rank = err->rank;
    if (comm_agree(store->comm, held[0] ? longer.status : DCP_OK, &longer)) *err = longer;
}
