/* The public calls of a load: at once, or in flight beside what the caller does next.
 *
 * The caller's thread plans a load in flight; another one reads, over a duplicate of the
 * checkpoint's communicator. Where there can be no such thread, the wait reads, or the next call
 * that wants the checkpoint for itself. In both cases the collectives come in the same order on
 * every rank. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/fail.h"
#include "core/sized.h"
#include "core/thread.h"
#include "load/load.h"
#include "load/loading.h"
#include "move/engine.h"

struct dcp_loading {
    step_user user;        /* first: what the checkpoint knows of it */
    load_job job;          /* its ckpt is NULL once the load has ended */
    dcp_comm *thread_comm; /* a duplicate of the checkpoint's; NULL: there can be no thread */
    dcp_error error;
    int status;
    pid_t process;
    int has_thread;
    pthread_t thread;
    atomic_int done, cancelled;
};

/* `given` is what was wrong with the caller's arguments so far. */
static void begin_job(load_job *l, dcp_checkpoint *ckpt, int given,
                      const dcp_load_options *options) {
    *l = (load_job){.ckpt = ckpt, .comm = ckpt->comm, .options = *options, .given = given};
    l->progress = (move_progress){.on_progress = options->on_progress,
                                  .progress_ctx = options->progress_ctx,
                                  .stop = {.asked = options->stop,
                                           .ctx = options->stop_ctx,
                                           .what = "the load",
                                           .outcome = "what the memory of the state's boxes holds "
                                                      "is undefined"}};
}

static void *run_loading(void *ctx) {
    dcp_loading *s = ctx;
    s->status = load_run(&s->job, &s->error);
    load_end(&s->job);
    atomic_store(&s->done, 1);
    return NULL;
}

/* A process that was forked since has neither the thread nor a part in the collectives. */
static int is_of_process(const dcp_loading *s) { return s->process == getpid(); }

/* Ends the load, where it has not ended. */
static void settle_loading(step_user *user) {
    dcp_loading *s = (dcp_loading *)user;
    dcp_checkpoint *ckpt = s->job.ckpt;
    if (!ckpt || !is_of_process(s)) return;
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    else
        run_loading(s);
    s->job.ckpt = NULL;
    ckpt->user = NULL;
}

static void free_loading(dcp_loading *s) {
    dcp_comm_destroy(s->thread_comm);
    free(s);
}

static void launch_loading(dcp_loading *s) {
    s->job.ckpt->user = &s->user;
    if (!s->thread_comm) return;
    s->job.comm = s->thread_comm;
    s->has_thread = !core_thread_start(&s->thread, NULL, run_loading, s, "dcp-load");
}

/* Collective. */
static int plan_loading(dcp_loading *s, const dcp_state *state, dcp_error *err) {
    load_job *l = &s->job;
    l->in_flight = 1;
    l->progress.stop.cancelled = &s->cancelled;
    s->user.settle = settle_loading;
    s->process = getpid();
    int status = load_plan(l, state, err);
    if (!status && l->engine->is_for_any_thread)
        status = comm_duplicate(l->comm, &s->thread_comm, err);
    if (status) load_end(l);
    return status;
}

int dcp_load_async(dcp_checkpoint *ckpt, const dcp_state *state, const dcp_load_options *options,
                   dcp_loading **out, dcp_error *err) {
    dcp_load_options own;
    if (!ckpt) return core_fail(err, DCP_ERR_ARG, "dcp_load_async: a checkpoint is needed");
    step_checkpoint_settle(ckpt);
    int status = core_sized_take(&own, sizeof own, options, "DCP_LOAD_OPTIONS_INIT", err);
    if (!status && !out) status = core_fail(err, DCP_ERR_ARG, "dcp_load_async: out is NULL");
    dcp_loading *s = calloc(1, sizeof *s);
    if (!s) {
        status = core_fail_memory(err, sizeof *s);
        return load_refuse(ckpt->comm, status, &own, err);
    }
    begin_job(&s->job, ckpt, status, &own);
    status = plan_loading(s, state, err);
    if (status) {
        free(s);
        return status;
    }
    launch_loading(s);
    *out = s;
    return DCP_OK;
}

int dcp_load_is_done(dcp_loading *loading) {
    if (!loading) return DCP_ERR_ARG;
    if (!is_of_process(loading) || atomic_load(&loading->done)) return 1;
    return loading->has_thread ? 0 : DCP_ERR_STATE;
}

void dcp_load_cancel(dcp_loading *loading) {
    if (loading) atomic_store(&loading->cancelled, 1);
}

int dcp_load_wait(dcp_loading *loading, dcp_report *report, dcp_error *err) {
    if (!loading) return core_fail(err, DCP_ERR_ARG, "dcp_load_wait: no load");
    if (!is_of_process(loading))
        return core_fail(err, DCP_ERR_STATE,
                         "dcp_load_wait: the load is of process %ld, of which this one is a fork: "
                         "only that one can wait for it",
                         (long)loading->process);
    int reportable = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    settle_loading(&loading->user);
    int status = loading->status;
    if (status && err) *err = loading->error;
    if (!status) status = reportable;
    if (!status) core_sized_give(report, &loading->job.report, sizeof loading->job.report);
    free_loading(loading);
    return status;
}

int dcp_load_with(dcp_checkpoint *ckpt, const dcp_state *state, const dcp_load_options *options,
                  dcp_report *report, dcp_error *err) {
    dcp_load_options own;
    if (!ckpt) return core_fail(err, DCP_ERR_ARG, "dcp_load: a checkpoint is needed");
    step_checkpoint_settle(ckpt);
    int given = core_sized_take(&own, sizeof own, options, "DCP_LOAD_OPTIONS_INIT", err);
    if (!given) given = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    load_job l;
    begin_job(&l, ckpt, given, &own);
    int status = load_plan(&l, state, err);
    if (!status) status = load_run(&l, err);
    load_end(&l);
    if (!status) core_sized_give(report, &l.report, sizeof l.report);
    return status;
}

int dcp_load(dcp_checkpoint *ckpt, const dcp_state *state, dcp_report *report, dcp_error *err) {
    return dcp_load_with(ckpt, state, NULL, report, err);
}
