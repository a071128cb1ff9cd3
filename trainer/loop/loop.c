/* Steps, lines and saves. A step's line is written before the step is saved: what a resumed run
 * finds saved has its line. */
#include <inttypes.h>

#include "../agree.h"
#include "../say.h"
#include "metrics.h"
#include "saves.h"
#include "signals.h"
#include "step.h"
#include "trainer.h"
#include "usage.h"

typedef struct loop {
    trainer *t;
    metrics *lines; /* on rank 0; NULL: none, or given up */
    saves saves;
    double line_at; /* when the last line was written */
} loop;

/* The save with which the run ends: `done` where it succeeds. */
static int save_and_end(loop *l, int done) {
    const trainer *t = l->t;
    const char *why = done == EXIT_STOPPED ? "stopped by SIGTERM" : "done";
    dcp_error err;
    if (saves_finish(&l->saves, &err) != DCP_OK) {
        say(t->rank, "%s, but step %" PRIu64 " could not be saved: %s", why, t->state->step,
            err.message);
        return EXIT_FAILED;
    }
    if (l->saves.saved_any)
        say(t->rank, "%s: step %" PRIu64 " is saved in %s", why, t->state->step, t->c->dir);
    else
        say(t->rank, "%s at step %" PRIu64 ", before anything was to be saved", why,
            t->state->step);
    return done;
}

/* What rank 0 tells of all ranks: the largest memory, and the slowest rank's compute time over the
 * mean. */
static void gather_usage(const trainer *t, const step_result *r, step_metrics *v) {
    const double compute = r->forward_s + r->backward_s;
    double most[2] = {(double)usage_peak_bytes(), compute}, sum = compute;
    const int root = t->rank == 0;
    MPI_Reduce(root ? MPI_IN_PLACE : most, most, 2, MPI_DOUBLE, MPI_MAX, 0, t->comm);
    MPI_Reduce(root ? MPI_IN_PLACE : &sum, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, t->comm);
    v->mem_peak_bytes = (uint64_t)most[0];
    v->imbalance = sum > 0 ? most[1] * t->world / sum : 1;
}

static void write_line(loop *l, const step_metrics *v) {
    dcp_error err;
    metrics_print(v, l->t->c->max_steps);
    if (!l->lines || metrics_write(l->lines, v, &err) == DCP_OK) return;
    say_warning(0, "%s: no more lines are written", err.message);
    metrics_close(l->lines);
    l->lines = NULL;
}

static void report(loop *l, const step_result *r) {
    const trainer *t = l->t;
    const double now = MPI_Wtime(), samples = (double)t->c->batch;
    step_metrics v = {.step = t->state->step,
                      .loss = r->loss,
                      .grad_norm = r->grad_norm,
                      .lr = r->lr,
                      .tokens = t->state->tokens,
                      .step_s = now - l->line_at,
                      .forward_s = r->forward_s,
                      .backward_s = r->backward_s,
                      .comm_s = r->comm_s,
                      .optimizer_s = r->optimizer_s,
                      .data_s = r->data_s,
                      .save_stall_s = l->saves.stall_s + r->fence_s,
                      .partial_sums_bytes = fsdp_partial_bytes(t->sharded),
                      .ranks = t->world};
    v.tokens_per_s = samples * (double)t->shape.targets / v.step_s;
    if (t->matmul_peak > 0)
        v.mfu = model_flops_per_sample(t->m, t->c->sequence) * samples / v.step_s / t->matmul_peak;
    gather_usage(t, r, &v);
    if (t->rank == 0) write_line(l, &v);
    l->line_at = now;
    l->saves.stall_s = 0;
}

static int is_save_due(const loop *l) {
    if (l->t->state->step == l->t->c->max_steps) return 0; /* the run's last save follows */
    return saves_are_due(&l->saves);
}

/* One step and what follows it; EXIT_DONE: go on. */
static int advance(loop *l) {
    step_result r = {0};
    dcp_error err;
    const int status = step_run(l->t, &r, &err);
    if (status != DCP_OK) {
        say(l->t->rank, "%s", err.message);
        return status == DCP_ERR_ARG ? EXIT_USAGE : EXIT_FAILED; /* data that no restart mends */
    }
    report(l, &r);
    return is_save_due(l) && saves_start(&l->saves) != DCP_OK ? EXIT_FAILED : EXIT_DONE;
}

static int answer_save_request(loop *l) {
    dcp_error err;
    const uint64_t step = l->t->state->step;
    const int status = saves_finish(&l->saves, &err);
    if (status != DCP_OK)
        say_warning(l->t->rank, "SIGUSR1: step %" PRIu64 " is not saved: %s", step, err.message);
    else
        say(l->t->rank, "SIGUSR1: step %" PRIu64 " %s", step,
            l->saves.saved_any ? "is saved" : "is where the run starts: nothing to save");
    return status == DCP_ERR_COMM ? EXIT_FAILED : EXIT_DONE;
}

static int run_steps(loop *l) {
    const trainer *t = l->t;
    if (t->state->step >= t->c->max_steps && saves_are_complete(&l->saves)) {
        say(t->rank, "step %" PRIu64 " of max_steps %" PRIu64 " is reached: nothing to do",
            t->state->step, t->c->max_steps);
        return EXIT_DONE;
    }
    int status = EXIT_DONE;
    while (status == EXIT_DONE) {
        const signal_requests asked = signals_take(t->comm);
        if (asked.stop) return save_and_end(l, EXIT_STOPPED);
        if (t->state->step >= t->c->max_steps) return save_and_end(l, EXIT_DONE);
        if (asked.save) status = answer_save_request(l);
        if (status == EXIT_DONE) status = advance(l);
    }
    return status;
}

int trainer_loop(trainer *t) {
    loop l = {.t = t, .line_at = MPI_Wtime()};
    dcp_error err;
    saves_begin(&l.saves, t);
    int status = DCP_OK;
    if (t->rank == 0 && t->c->metrics)
        status = metrics_open(t->c->metrics, t->state->step, &l.lines, &err);
    if (agree(t->comm, status, &err) != DCP_OK) {
        say(t->rank, "%s", err.message);
        return EXIT_USAGE;
    }
    status = run_steps(&l);
    saves_settle(&l.saves);
    metrics_close(l.lines);
    return status;
}
