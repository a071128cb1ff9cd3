/* The public calls that save, either before they return or in flight while the caller continues.
 *
 * A save in flight is run by a task. Until a caller has waited for the save, the store uses a
 * duplicate of its communicator and belongs to the task's thread: all other functions that change
 * the store wait for the save first. If there can be no thread, the first fence or wait runs the
 * save. In both cases the collectives come in the same order on every rank. */
#include "save/calls.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/checks.h"
#include "core/fail.h"
#include "core/system.h"
#include "core/task.h"
#include "move/engine.h"
#include "save/context.h"
#include "save/copy.h"
#include "save/plan.h"

#define ASK_SECONDS 0.05 /* between calls of the caller's `stop` in dcp_save_async */

struct dcp_saving {
    core_task task;
    dcp_store *store;       /* NULL once a caller has waited for the save */
    dcp_comm *callers_comm; /* the store gets it back at the end of the wait */
    save_request request;
    dcp_report report;
    bool may_have_thread; /* the same on all ranks. If true, the save is planned already; if false,
                             a fence, a wait or the next save runs it */
    bool is_ahead;        /* its boxes were copied before the call (dcp_save_copy) */
    pthread_mutex_t lock; /* guards the following members */
    pthread_cond_t changed;
    bool awaited, released;
    char dir[]; /* the store's directory */
};

static void announce(dcp_saving *s, bool *what) {
    pthread_mutex_lock(&s->lock);
    *what = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Waits until *what is true, at most `seconds`; negative: without a limit. Returns *what. */
static bool await_change(dcp_saving *s, const bool *what, double seconds) {
    const struct timespec end = core_clock_timespec(core_clock_now() + seconds);
    int timed_out = 0;
    pthread_mutex_lock(&s->lock);
    while (!*what && !timed_out)
        timed_out = seconds < 0 ? pthread_cond_wait(&s->changed, &s->lock)
                                : pthread_cond_timedwait(&s->changed, &s->lock, &end);
    const bool changed = *what;
    pthread_mutex_unlock(&s->lock);
    return changed;
}

static void make_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void on_released(void *ctx) {
    dcp_saving *s = ctx;
    announce(s, &s->released);
}

static bool is_awaited(void *ctx) {
    dcp_saving *s = ctx;
    pthread_mutex_lock(&s->lock);
    bool awaited = s->awaited;
    pthread_mutex_unlock(&s->lock);
    return awaited;
}

/* Replaces the plan's boxes with the boxes of the copy that was made ahead. */
static void use_ahead(const dcp_store *store, dcp_saving *s) {
    const save_context *kept = save_context_of(store);
    save_copy_use(kept->memory.copy, kept->plan);
    s->request.is_copied = true;
}

static int run_saving(void *ctx, dcp_error *err) {
    dcp_saving *s = ctx;
    int status = DCP_OK;
    move_progress progress = s->request.progress;
    if (!s->request.make_room && !s->request.is_copied) {
        progress.released = on_released;
        progress.is_awaited = is_awaited;
    }
    progress.ctx = s;
    progress.stop.cancelled = &s->task.cancelled;
    if (!s->may_have_thread) {
        status = save_prepare(s->store, &s->request, err);
        if (!status && s->is_ahead) use_ahead(s->store, s);
    }
    if (!status) status = save_run(s->store, &s->request, &progress, &s->report, err);
    announce(s, &s->released);
    return status;
}

/* Returns false in a forked process, which must not touch the save: its locks may be held by
 * threads that do not exist in that process. */
static bool is_own(const dcp_saving *s) { return core_task_is_own(&s->task); }

/* Waits until the save has ended, or runs it if it has no thread. Gives the store its communicator
 * back. */
static void wait_for_saving(dcp_saving *s) {
    dcp_store *store = s->store;
    if (!store) return;
    assert(save_context_of(store)->in_flight == s);
    core_task_finish(&s->task);
    s->store = NULL;
    store->comm = s->callers_comm;
    save_context_of(store)->in_flight = NULL;
}

static void wait_for_save_in_flight(store_attachment *attachment) {
    const save_context *kept = (save_context *)attachment;
    if (kept->in_flight && is_own(kept->in_flight)) wait_for_saving(kept->in_flight);
}

static void free_saving(dcp_saving *s) {
    save_request_free(&s->request);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int make_saving(dcp_store *store, uint64_t step, const dcp_state *state, const char *json,
                       const dcp_save_options *options, dcp_saving **out, dcp_error *err) {
    const size_t bytes = sizeof(dcp_saving) + strlen(store->dir) + 1;
    dcp_saving *s = calloc(1, bytes);
    if (!s) return core_fail_memory(err, bytes);
    strcpy(s->dir, store->dir);
    core_task_init(&s->task, run_saving, s);
    pthread_mutex_init(&s->lock, NULL);
    make_condition(&s->changed);
    *out = s;
    int status = save_request_make(store, step, state, json, options, &s->request, err);
    return status
               ? status
               : save_context_prepare_staging(store, state, s->request.progress.staging_bytes, err);
}

/* Plans the save. HDF5 is not thread-safe, so it lays the files out on the caller's thread, before
 * the task starts a thread. If planning fails, dcp_save_wait returns the failure. */
static void plan_saving(dcp_store *store, dcp_saving *s) {
    const int status = save_prepare(store, &s->request, &s->task.error);
    if (!status) return;
    core_task_fail(&s->task, status);
    s->released = true;
}

/* Copies the boxes that the save reads, so the caller's memory may change when the call returns. */
static void copy_memory(const dcp_store *store, dcp_saving *s, comm_stop *stop) {
    save_context *kept = save_context_of(store);
    const double start = core_clock_now();
    if (!s->request.copy_bytes || core_task_is_done(&s->task)) return;
    if (s->is_ahead)
        use_ahead(store, s);
    else if (kept->plan->engine->is_by_position)
        s->request.is_copied = save_copy_make(store, &s->request, kept->plan, kept->memory.staging,
                                              stop, &kept->memory.copy);
    s->released = s->request.is_copied;
    s->report.copy_s = core_clock_now() - start;
}

static void launch_saving(dcp_store *store, dcp_saving *s, comm_stop *stop) {
    save_context *kept = save_context_of(store);
    /* without a duplicate there can be no thread, and the fence runs the save over the store's
     * communicator; MPI-IO and HDF5 are not thread-safe, so engines that call them get no thread */
    s->may_have_thread =
        kept->comm && move_engine_row((dcp_engine)s->request.agreed.engine)->is_for_any_thread;
    if (s->may_have_thread) {
        plan_saving(store, s);
        copy_memory(store, s, stop);
    }
    s->store = store;
    s->callers_comm = store->comm;
    if (kept->comm) store->comm = kept->comm;
    kept->in_flight = s;
    kept->attachment.wait = wait_for_save_in_flight;
    if (s->may_have_thread && !core_task_is_done(&s->task)) core_task_start(&s->task, "dcp-save");
}

/* If saves run in threads, the threads end at different times on different ranks; the vote that
 * follows makes all ranks refuse if any of them refuses. Without threads, either all ranks run the
 * save in flight here, or none does. */
int save_call_begin(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    dcp_error *err) {
    bool refuses = options->when_busy == DCP_BUSY_REFUSE;
    const int forked = store_check_own(store, err);
    if (forked) return forked; /* a forked process lacks part of the context's memory */
    int made = save_context_make(store, status ? NULL : err);
    if (made) return status ? status : made;
    dcp_saving *s = save_context_of(store)->in_flight;
    bool is_busy = s && dcp_save_is_done(s) != 1;
    if (is_busy && !s->may_have_thread)
        status = save_call_agree(store, status, call, options, NULL, err);
    if (status) return status;
    if (refuses && is_busy)
        return core_fail_at(err, DCP_ERR_BUSY, store->dir,
                            "a save is in flight: wait for it, or let this one wait (when_busy)");
    store_wait_for_save(store);
    return DCP_OK;
}

int save_call_agree(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    save_request *r, dcp_error *err) {
    save_request none = {0};
    save_request *own = r ? r : &none;
    comm_vote *v = &own->agreed.vote;
    const double begin = core_clock_now();
    comm_vote_same(v, "the call: 0 is dcp_save, 1 dcp_save_async, 2 dcp_rewrite", call);
    comm_vote_same(v, "when_busy", options->when_busy);
    comm_vote_same(v, "make_room", options->make_room != 0);
    comm_vote_same(v, "whether copy_bytes is 0", call == SAVE_ASYNC && !options->copy_bytes);
    comm_vote_split(v); /* save_prepare checks the values that follow, so dcp_save_wait can return a
                           mismatch */
    const bool is_made = r && !status;
    save_plan_vote(store, own, is_made ? save_context_of(store)->plan : NULL, is_made);
    status = comm_vote_run(store->comm, v, status, err);
    own->agreed.seconds = core_clock_now() - begin;
    return status;
}

static int take_options(const dcp_save_options *given, dcp_save_options *own, dcp_error *err) {
    return core_sized_copy_in(own, sizeof *own, given, "DCP_SAVE_OPTIONS_INIT", err);
}

/* If the caller's `stop` on this rank requests it, cancels this rank's save, which makes the other
 * ranks stop. */
static void follow_stop(dcp_saving *s, comm_stop *stop) {
    if (comm_stop_poll(stop, NULL) && stop->rank == stop->comm->rank) dcp_save_cancel(s);
}

/* Waits until the caller's memory may change. Called if the save's boxes were not copied, or no
 * thread runs the save. */
static void await_release(dcp_saving *s, comm_stop *stop) {
    if (!s->task.has_thread) dcp_save_fence(s);
    while (!dcp_save_fence_within(s, ASK_SECONDS)) follow_stop(s, stop);
}

/* Sets *is_ahead to true if this save uses the copy that was made ahead. A later save can no longer
 * use that copy. */
static int take_ahead(const dcp_store *store, const dcp_state *state,
                      const dcp_save_options *options, bool *is_ahead, dcp_error *err) {
    save_context *kept = save_context_of(store);
    const bool is_there = kept->ahead == state && kept->ahead_changed == state->changed;
    kept->ahead = NULL;
    *is_ahead = options->is_copied != 0;
    if (!*is_ahead || (is_there && options->copy_bytes)) return DCP_OK;
    return core_fail_path(core_fail(err, DCP_ERR_STATE,
                                    "dcp_save_async: is_copied is set, but %s has no copy of this "
                                    "state: see dcp_save_copy",
                                    store->dir),
                          store->dir, err);
}

int dcp_save_async(dcp_store *store, uint64_t step, const dcp_state *state, const char *json,
                   const dcp_save_options *options, dcp_saving **out, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_save_async: a store is needed");
    dcp_saving *s = NULL;
    dcp_save_options own;
    int status = take_options(options, &own, err);
    status = save_call_begin(store, status, SAVE_ASYNC, &own, err);
    if (!status && !out) status = core_fail(err, DCP_ERR_ARG, "dcp_save_async: out is NULL");
    if (!status) status = make_saving(store, step, state, json, &own, &s, err);
    if (!status) status = take_ahead(store, state, &own, &s->is_ahead, err);
    status = save_call_agree(store, status, SAVE_ASYNC, &own, s ? &s->request : NULL, err);
    if (!status && !save_context_of(store)->comm)
        status = comm_duplicate(store->comm, &save_context_of(store)->comm, err);
    if (status) {
        if (s) free_saving(s);
        return status;
    }
    comm_stop stop = comm_stop_of(store->comm, "the save", "nothing is published");
    launch_saving(store, s, &stop);
    *out = s;
    follow_stop(s, &stop);
    if (own.copy_bytes && !(s->request.is_copied && s->task.has_thread)) await_release(s, &stop);
    return DCP_OK;
}

/* Returns true if the boxes of the store's next save can be copied now, using the plan of its last
 * save. */
static bool may_copy_ahead(const save_context *kept, const dcp_state *state,
                           const dcp_save_options *options) {
    return kept && kept->plan && kept->plan->engine && kept->comm && !state->device &&
           options->copy_bytes && kept->plan->engine->is_by_position;
}

int dcp_save_copy(dcp_store *store, const dcp_state *state, const dcp_save_options *options,
                  int *is_copied, dcp_error *err) {
    dcp_save_options own;
    if (!store || !state || !is_copied)
        return core_fail(err, DCP_ERR_ARG,
                         "dcp_save_copy: a store, a state and is_copied are needed");
    *is_copied = 0;
    int status = take_options(options, &own, err);
    if (!status) status = store_check_own(store, err);
    if (status) return status;
    store_wait_for_save(store);
    save_context *kept = save_context_of(store);
    if (!may_copy_ahead(kept, state, &own)) return DCP_OK;
    kept->ahead = NULL;
    comm_stop stop = comm_stop_of(store->comm, "the save", "nothing is published");
    *is_copied = save_copy_repeat(store, state, own.copy_bytes, &stop, kept->memory.copy);
    if (!*is_copied) {
        save_request r = {0};
        status = save_request_make(store, 0, state, NULL, &own, &r, err);
        if (!status && save_plan_matches(kept->plan, &r))
            *is_copied =
                save_copy_make_ahead(store, &r, state, kept->plan, &stop, &kept->memory.copy);
        save_request_free(&r);
    }
    kept->ahead = *is_copied ? state : NULL;
    kept->ahead_changed = state->changed;
    return status;
}

int dcp_save_fence_within(dcp_saving *saving, double seconds) {
    if (!saving || !is_own(saving)) return 1;
    if (saving->store && !saving->task.has_thread) {
        wait_for_saving(saving);
        return 1;
    }
    announce(saving, &saving->awaited);
    return await_change(saving, &saving->released, seconds);
}

void dcp_save_fence(dcp_saving *saving) { dcp_save_fence_within(saving, -1); }

void dcp_save_cancel(dcp_saving *saving) {
    if (saving) core_task_cancel(&saving->task);
}

int dcp_save_is_done(dcp_saving *saving) {
    if (!saving) return DCP_ERR_ARG;
    if (!is_own(saving) || core_task_is_done(&saving->task)) return 1;
    return saving->task.has_thread ? 0 : DCP_ERR_STATE;
}

int dcp_save_wait(dcp_saving *saving, dcp_report *report, dcp_error *err) {
    if (!saving) return core_fail(err, DCP_ERR_ARG, "dcp_save_wait: no save");
    if (!is_own(saving))
        return core_fail_path(
            core_fail(err, DCP_ERR_STATE,
                      "dcp_save_wait: the save into %s was started by process %ld, from which "
                      "this process was forked: only that process can wait for it",
                      saving->dir, (long)saving->task.process),
            saving->dir, err);
    int reportable = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    wait_for_saving(saving);
    int status = saving->task.status;
    if (status && err) *err = saving->task.error;
    if (!status) status = reportable;
    if (!status) core_sized_copy_out(report, &saving->report, sizeof saving->report);
    free_saving(saving);
    return status;
}

int dcp_save_prepare(dcp_store *store, const dcp_state *state, const dcp_save_options *options,
                     dcp_error *err) {
    if (!store || !state)
        return core_fail(err, DCP_ERR_ARG, "dcp_save_prepare: a store and a state are needed");
    dcp_save_options own;
    int status = take_options(options, &own, err);
    if (!status) status = save_context_make(store, err);
    if (status) return status;
    if (save_context_of(store)->in_flight)
        return core_fail_path(
            core_fail(err, DCP_ERR_STATE,
                      "dcp_save_prepare: %s: a save is in flight: wait for it first", store->dir),
            store->dir, err);
    return save_context_open_staging(store, state, save_request_copy_bytes(&own), err);
}

int save_call_plan(dcp_store *store, int status, uint64_t step, const dcp_state *state,
                   const char *json, const dcp_save_options *options, save_request *r,
                   dcp_error *err) {
    status = save_call_begin(store, status, SAVE_NOW, options, err);
    if (!status) status = save_request_make(store, step, state, json, options, r, err);
    if (!status)
        status = save_context_prepare_staging(store, state, r->progress.staging_bytes, err);
    status = save_call_agree(store, status, SAVE_NOW, options, r, err);
    return status ? status : save_prepare(store, r, err);
}

int dcp_save(dcp_store *store, uint64_t step, const dcp_state *state, const char *json,
             const dcp_save_options *options, dcp_report *report, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_save: a store is needed");
    save_request r = {0};
    dcp_report figures = DCP_REPORT_INIT;
    dcp_save_options own;
    int status = take_options(options, &own, err);
    if (!status) status = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    status = save_call_plan(store, status, step, state, json, &own, &r, err);
    move_progress progress = r.progress;
    if (!status) status = save_run(store, &r, &progress, &figures, err);
    save_request_free(&r);
    if (!status) core_sized_copy_out(report, &figures, sizeof figures);
    return status;
}
