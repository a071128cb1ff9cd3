#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree.h"
#include "common/say.h"
#include "programs/fail.h"
#include "report/spent.h"
#include "report/usage.h"
#include "step/saves.h"

static void tell_unbalanced(void *ctx, int rank, balance_kind kind, int is, double ratio) {
    const report *r = ctx;
    if (!is)
        say(0, "rank %d is %s the others again", rank,
            kind == BALANCE_SLOW ? "as fast as" : "no larger than");
    else if (kind == BALANCE_SLOW)
        say_warning(0,
                    "rank %d is slow: over the last %d steps it took %.2f times the other ranks' "
                    "mean to compute a micro-batch",
                    rank, BALANCE_STEPS, ratio);
    else
        say_warning(0,
                    "rank %d is large: its memory peaked at %.0f MiB, %.2f times the others' mean",
                    rank, r->usage[r->t->world + rank] / 1048576, ratio);
}

static int open_metrics(report *r, dcp_error *err) {
    const char *path = r->t->c->metrics;
    char old[PATH_MAX];
    if (!path) return DCP_OK;
    if (r->t->state->step == 0) {
        const int status = metrics_set_aside(path, old, sizeof old, err);
        if (status != DCP_OK) return status;
        if (*old) say(0, "another run's metrics are in %s now", old);
    }
    return metrics_open(path, r->t->state->step, &r->lines, err);
}

static int prepare(report *r, dcp_error *err) {
    const trainer *t = r->t;
    if (t->rank != 0) return DCP_OK;
    const fsdp_micro_batches leaves = fsdp_plan_micro_batches(&t->plan);
    r->usage = calloc(2 * (size_t)t->world, sizeof *r->usage);
    r->ranks = balance_create(&leaves, tell_unbalanced, r);
    if (!r->usage || !r->ranks) return core_fail_memory(err, 0);
    return open_metrics(r, err);
}

/* Events of a step: six a stage of a leaf, a save's, and room for what comes once. */
static int begin_trace(report *r, dcp_error *err) {
    trainer *t = r->t;
    const uint64_t most = 1 << 20;
    const uint64_t passes = fsdp_micro_steps(t->sharded) + evaluate_leaves(t) / (uint64_t)t->world;
    const uint64_t step = 1024 + SAVE_PHASES + 6 * passes * model_stages(t->m);
    const size_t room = step < most ? step : most;
    const int status = agree(t->comm, timeline_init(&t->tl, room, err), err);
    return status == DCP_OK ? trace_open(t->trace, t->comm, room, &r->trace, err) : status;
}

/* Collective. */
static void flush_trace(report *r) {
    dcp_error err;
    if (r->trace && trace_flush(r->trace, &r->t->tl, &err) != DCP_OK)
        say_warning(0, "%s: the trace ends here; training goes on", err.message);
}

static void end_trace(report *r) {
    if (!r->trace) return;
    flush_trace(r);
    const uint64_t dropped = trace_dropped(r->trace, &r->t->tl);
    if (dropped)
        say_warning(r->t->rank, "%s: %" PRIu64 " events found no room and are left out",
                    r->t->trace, dropped);
}

int report_begin(report *r, trainer *t, dcp_error *err) {
    *r = (report){.t = t, .begin = MPI_Wtime()};
    r->line_at = r->begin;
    int status = agree(t->comm, prepare(r, err), err);
    if (status == DCP_OK && t->trace) status = begin_trace(r, err);
    return status;
}

/* What rank 0 tells of all ranks: the largest memory, and the slowest rank's compute time over the
 * mean. */
static void gather_usage(report *r, double compute_s, step_metrics *v) {
    const int world = r->t->world;
    const double bytes = (double)usage_peak_bytes();
    double *times = r->usage, *memory = r->usage ? r->usage + world : NULL;
    MPI_Gather(&compute_s, 1, MPI_DOUBLE, times, 1, MPI_DOUBLE, 0, r->t->comm);
    MPI_Gather(&bytes, 1, MPI_DOUBLE, memory, 1, MPI_DOUBLE, 0, r->t->comm);
    if (!r->usage) return;
    double sum = 0, slowest = 0, largest = 0;
    for (int i = 0; i < world; i++) {
        sum += times[i];
        if (times[i] > slowest) slowest = times[i];
        if (memory[i] > largest) largest = memory[i];
    }
    v->mem_peak_bytes = (uint64_t)largest;
    v->imbalance = sum > 0 ? slowest * world / sum : 1;
    balance_step(r->ranks, times, memory);
}

static void write_line(report *r, const step_metrics *v) {
    dcp_error err;
    if (!r->is_mute && metrics_print(v, r->t->c->max_steps, r->t->shape.tokens > 0) != 0 &&
        errno != EPIPE) { /* a reader that has seen enough */
        say_warning(0, "stdout: %s: no more lines are shown; training goes on", strerror(errno));
        r->is_mute = 1;
    }
    if (!r->lines || metrics_write(r->lines, v, &err) == DCP_OK) return;
    say_warning(0, "%s: no more lines are written", err.message);
    metrics_close(r->lines);
    r->lines = NULL;
}

void report_step(report *r, const step_result *result, const evaluation *evaluated) {
    const trainer *t = r->t;
    double now[TIMELINE_SPENT], spent[TIMELINE_SPENT];
    memcpy(now, t->tl.spent, sizeof now);
    for (int i = 0; i < TIMELINE_SPENT; i++) spent[i] = now[i] - r->spent[i];
    const double at = MPI_Wtime(), samples = (double)t->c->batch;
    const fsdp_memory memory = fsdp_plan_memory(&t->plan);
    const uint64_t sent = fsdp_sent_bytes(t->sharded);
    step_metrics v = {.step = t->state->step,
                      .loss = result->loss,
                      .grad_norm = result->grad_norm,
                      .lr = result->lr,
                      .tokens = t->state->tokens,
                      .step_s = at - r->line_at,
                      .forward_s = spent[TIMELINE_FORWARD],
                      .backward_s = spent[TIMELINE_BACKWARD],
                      .comm_s = spent[TIMELINE_WAIT] + spent[TIMELINE_REDUCE],
                      .gather_wait_s = spent[TIMELINE_WAIT],
                      .optimizer_s = spent[TIMELINE_OPTIMIZER],
                      .data_s = spent[TIMELINE_DATA],
                      .save_stall_s = spent[TIMELINE_STALL],
                      .partial_sums_bytes = memory.partial,
                      .state_bytes = memory.state,
                      .sent_bytes = sent - r->sent,
                      .ranks = t->world,
                      .evaluated = evaluated->done,
                      .eval_loss = evaluated->loss,
                      .eval_accuracy = t->shape.tokens ? -1 : evaluated->accuracy,
                      .eval_s = spent[TIMELINE_EVALUATE]};
    const double training_s = v.step_s - v.eval_s;
    v.tokens_per_s = samples * (double)t->shape.targets / training_s;
    if (t->matmul_peak > 0)
        v.mfu = model_flops_per_sample(t->m, t->sequence) * samples / training_s / t->matmul_peak;
    gather_usage(r, v.forward_s + v.backward_s, &v);
    if (t->rank == 0) write_line(r, &v);
    memcpy(r->spent, now, sizeof now);
    flush_trace(r);
    r->line_at = at;
    r->sent = sent;
    r->steps++;
}

/* Beside what was predicted. */
static void tell_memory(const report *r) {
    static const char offloaded[] = ", and what the kernel keeps of the offloaded file";
    const trainer *t = r->t;
    double most = (double)usage_peak_bytes();
    const int root = t->rank == 0;
    MPI_Reduce(root ? MPI_IN_PLACE : &most, &most, 1, MPI_DOUBLE, MPI_MAX, 0, t->comm);
    if (r->steps)
        say(t->rank,
            "memory of the largest rank peaked at %.1f MiB; predicted were %.1f, and up to %.1f "
            "more for saves that are waited for%s",
            most / 1048576, (double)t->memory_bytes / 1048576, (double)t->staging_bytes / 1048576,
            t->c->offload_path ? offloaded : "");
}

int report_end(report *r, int status) {
    if (status == EXIT_DONE || status == EXIT_STOPPED) {
        spent_tell(r->t, r->steps, MPI_Wtime() - r->begin);
        tell_memory(r);
        end_trace(r);
    }
    const int lost = r->is_mute || !trace_is_whole(r->trace);
    trace_close(r->trace);
    metrics_close(r->lines);
    balance_destroy(r->ranks);
    free(r->usage);
    return status == EXIT_DONE && lost ? EXIT_FAILED : status;
}
