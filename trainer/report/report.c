#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "fsdp/fsdp.h"
#include "programs/fail.h"
#include "programs/program.h"
#include "ranks/launcher.h"
#include "ranks/log.h"
#include "report/metrics.h"
#include "report/trace.h"
#include "state/train_state.h"
#include "step/external_requests.h"
#include "step/saves.h"
#include "step/trainer.h"

static const double more = 1.2, alike = 1.1;
static const double least_s = 0.01 * REPORT_BALANCE_STEPS, least_bytes = 64 << 20;
enum { MOST_STEPS = 8 }; /* a slow rank is slow in at least this many steps of a window */

typedef struct balance_rank {
    double micro_batches; /* per step */
    double micro_batch_s; /* time per micro-batch, summed over the window */
    int slow_steps;
    bool is[REPORT_BALANCE_KINDS]; /* whether it is slow, or large, as last reported */
} balance_rank;

struct report_balance {
    int world, working; /* ranks, and ranks with micro-batches */
    int steps;          /* so far in this window */
    report_balance_fn notify;
    void *ctx;
    balance_rank ranks[];
};

report_balance *report_balance_create(const fsdp_micro_batches *micro_batches,
                                      report_balance_fn notify, void *ctx) {
    const int world = micro_batches->world;
    report_balance *b = calloc(1, sizeof *b + (size_t)world * sizeof *b->ranks);
    if (!b) return NULL;
    *b = (report_balance){.world = world, .notify = notify, .ctx = ctx};
    for (int r = 0; r < world && fsdp_micro_batch_of(micro_batches, r, 0) < micro_batches->n;
         r++, b->working++)
        while (fsdp_micro_batch_of(micro_batches, r, (uint64_t)b->ranks[r].micro_batches) <
               micro_batches->n)
            b->ranks[r].micro_batches++;
    return b;
}

void report_balance_destroy(report_balance *b) { free(b); }

static void judge_ratio(report_balance *b, int rank, report_balance_kind kind, bool exceeds,
                        double ratio) {
    bool *is = &b->ranks[rank].is[kind];
    if (*is ? ratio >= alike : !exceeds) return;
    *is = !*is;
    b->notify(b->ctx, rank, kind, *is, ratio);
}

/* Adds the times of one step. Skips ranks without micro-batches, whose times mean nothing. */
static void add_step(report_balance *b, const double *compute_s) {
    double sum = 0;
    for (int r = 0; r < b->working; r++) sum += compute_s[r] / b->ranks[r].micro_batches;
    for (int r = 0; r < b->working; r++) {
        const double own = compute_s[r] / b->ranks[r].micro_batches;
        b->ranks[r].micro_batch_s += own;
        b->ranks[r].slow_steps += own * (b->working - 1) > more * (sum - own);
    }
}

static void judge_times(report_balance *b) {
    double sum = 0;
    for (int r = 0; r < b->working; r++) sum += b->ranks[r].micro_batch_s;
    for (int r = 0; r < b->working; r++) {
        balance_rank *m = &b->ranks[r];
        const double others = (sum - m->micro_batch_s) / (b->working - 1);
        const double costs = (m->micro_batch_s - others) * m->micro_batches;
        judge_ratio(b, r, REPORT_BALANCE_SLOW,
                    m->micro_batch_s > more * others && costs > least_s &&
                        m->slow_steps >= MOST_STEPS,
                    m->micro_batch_s / others);
    }
    for (int r = 0; r < b->working; r++) b->ranks[r].micro_batch_s = b->ranks[r].slow_steps = 0;
}

static void judge_bytes(report_balance *b, const double *bytes) {
    double sum = 0;
    for (int r = 0; r < b->world; r++) sum += bytes[r];
    for (int r = 0; r < b->world; r++) {
        const double others = (sum - bytes[r]) / (b->world - 1);
        judge_ratio(b, r, REPORT_BALANCE_LARGE,
                    bytes[r] > more * others && bytes[r] - others > least_bytes, bytes[r] / others);
    }
}

void report_balance_step(report_balance *b, const double *compute_s, const double *bytes) {
    add_step(b, compute_s);
    if (++b->steps < REPORT_BALANCE_STEPS) return;
    b->steps = 0;
    if (b->working > 1) judge_times(b);
    if (b->world > 1) judge_bytes(b, bytes);
}

/* The peak resident memory of this process; 0 if the system does not report it. Uses VmHWM because
 * getrusage inherits the peak of the process that started this one. */
static uint64_t peak_bytes(void) {
    FILE *file = fopen("/proc/self/status", "re");
    if (!file) return 0;
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) break;
    fclose(file);
    return (uint64_t)kib * 1024;
}

static void warn_unbalanced(void *ctx, int rank, report_balance_kind kind, int is, double ratio) {
    const run_report *r = ctx;
    if (!is)
        ranks_info(0, "rank %d is %s the others again", rank,
                   kind == REPORT_BALANCE_SLOW ? "as fast as" : "no larger than");
    else if (kind == REPORT_BALANCE_SLOW)
        ranks_warn(0,
                   "rank %d is slow: over the last %d steps it took %.2f times the other ranks' "
                   "mean time to compute a micro-batch",
                   rank, REPORT_BALANCE_STEPS, ratio);
    else
        ranks_warn(0,
                   "rank %d is large: its memory peaked at %.0f MiB, %.2f times the others' mean",
                   rank, r->usage[r->t->world + rank] / 1048576, ratio);
}

static int open_metrics(run_report *r, dcp_error *err) {
    const char *path = r->t->c->metrics;
    const train_state *s = r->t->state;
    if (!path && r->t->prove_every)
        ranks_warn(0, "--prove-every: metrics is null, so the state ids are shown but not stored");
    if (!path) return DCP_OK;
    const report_file_run run = {.name = json_string_value(json_object_get(r->t->about, STATE_RUN)),
                                 .before = s->saved_by,
                                 .step = s->step};
    return report_metrics_open(path, &run, &r->lines, err);
}

static int prepare_rank_0(run_report *r, dcp_error *err) {
    const trainer *t = r->t;
    if (t->rank != 0) return DCP_OK;
    const fsdp_micro_batches micro_batches = fsdp_plan_micro_batches(&t->plan);
    r->usage = calloc(5 * (size_t)t->world, sizeof *r->usage);
    r->ranks = report_balance_create(&micro_batches, warn_unbalanced, r);
    if (!r->usage || !r->ranks) return core_fail_memory(err, 0);
    report_console_begin(&r->console, t->c->log_every, t->c->max_steps, t->shape.tokens > 0,
                         report_console_columns());
    return DCP_OK;
}

/* Collective. Opens the metrics on rank 0. A restart waits for an earlier start's lock: a file
 * server may keep the locks of a host that was lost. */
static int wait_for_metrics(run_report *r, dcp_error *err) {
    const trainer *t = r->t;
    const double grace = ranks_launcher_takes_over() ? ranks_launcher_grace_s() : 0;
    for (int tries = 1;; tries++) {
        const int status = ranks_agree(t->comm, t->rank == 0 ? open_metrics(r, err) : DCP_OK, err);
        if (!step_requests_allow_wait(t->comm, tries, status, r->begin, grace, err->message))
            return status;
    }
}

/* Allocates room for a step's events: six per stage of a micro-batch, the events of a save, and
 * some more. */
static int begin_trace(run_report *r, dcp_error *err) {
    trainer *t = r->t;
    const uint64_t most = 1 << 20;
    const uint64_t passes =
        fsdp_micro_steps(t->sharded) + step_evaluate_micro_batches(t) / (uint64_t)t->world;
    const uint64_t step = 1024 + STEP_SAVE_PHASES + 6 * passes * model_stages(t->m);
    const size_t room = step < most ? step : most;
    const int status = ranks_agree(t->comm, timeline_init(&t->tl, room, err), err);
    if (status != DCP_OK) return status;
    return report_trace_open(t->trace, t->comm, room, r->begin, &r->trace, err);
}

/* Collective. */
static void flush_trace(run_report *r) {
    dcp_error err;
    if (r->trace && report_trace_flush(r->trace, &r->t->tl, &err) != DCP_OK)
        ranks_warn(0, "%s: the trace ends here; training continues", err.message);
}

static void end_trace(run_report *r) {
    if (!r->trace) return;
    flush_trace(r);
    const uint64_t dropped = report_trace_dropped(r->trace, &r->t->tl);
    if (dropped)
        ranks_warn(r->t->rank, "%s: %" PRIu64 " events found no room and are left out", r->t->trace,
                   dropped);
}

int report_begin(run_report *r, trainer *t, dcp_error *err) {
    *r = (run_report){.t = t, .begin = MPI_Wtime()};
    r->line_at = r->begin;
    int status = ranks_agree(t->comm, prepare_rank_0(r, err), err);
    if (status == DCP_OK) status = wait_for_metrics(r, err);
    if (status == DCP_OK && t->trace) status = begin_trace(r, err);
    return status;
}

/* Gathers what rank 0 reports about all ranks: the largest memory, and the slowest rank with its
 * ratio to the mean. r->usage has three parts: all ranks' compute times; all ranks' memory; and the
 * values that are received, three per rank. The first two parts are separate arrays for
 * report_balance_step. */
static void gather_usage(run_report *r, double compute_s, report_values *v) {
    const int world = r->t->world;
    const double own[3] = {compute_s, (double)peak_bytes(), (double)r->t->k->peak(r->t->k)};
    double *times = r->usage, *memory = times + (r->usage ? world : 0);
    double *all = times + (r->usage ? 2 * world : 0);
    MPI_Gather(own, 3, MPI_DOUBLE, all, 3, MPI_DOUBLE, 0, r->t->comm);
    if (!r->usage) return;
    double sum = 0, largest = 0, on_device = 0;
    int slowest = 0;
    for (int i = 0; i < world; i++) {
        times[i] = all[3 * i];
        memory[i] = all[3 * i + 1];
        sum += times[i];
        if (times[i] > times[slowest]) slowest = i;
        if (memory[i] > largest) largest = memory[i];
        if (all[3 * i + 2] > on_device) on_device = all[3 * i + 2];
    }
    v->mem_peak_bytes = (uint64_t)largest;
    v->device_peak_bytes = (uint64_t)on_device;
    v->imbalance = sum > 0 ? times[slowest] * world / sum : 1;
    v->slowest_rank = slowest;
    report_balance_step(r->ranks, times, memory);
}

/* Reports the first line that fails, and the first one that succeeds again. Each line is tried,
 * because a full disk may have room again later. */
static void note_metrics(run_report *r, uint64_t step, int status, const dcp_error *err) {
    const bool failed = status != DCP_OK;
    if (failed && !r->lines_fail)
        ranks_warn(0, "%s: lines are left out until one can be written; training continues",
                   err->message);
    if (!failed && r->lines_fail)
        ranks_info(0, "metrics: lines are written again, from step %" PRIu64 " on", step);
    r->lines_fail = failed;
}

static void note_console(run_report *r, int failed) {
    if (!failed || errno == EPIPE) return; /* the reader has closed its end */
    ranks_warn(0, "stdout: %s: no more lines are shown; training continues", strerror(errno));
    r->is_mute = true;
}

static void write_line(run_report *r, const report_values *v) {
    dcp_error err;
    if (!r->is_mute) note_console(r, report_console_step(&r->console, v));
    if (r->lines) note_metrics(r, v->step, report_metrics_write(r->lines, v, &err), &err);
}

void report_exclude_time(run_report *r, double seconds) { r->line_at += seconds; }

_Static_assert((int)SAMPLE_MAX_LOSSES == (int)REPORT_MAX_LOSSES, "a line has all losses");

/* Copies the losses whose weighted sum is the loss. */
static void take_losses(const trainer *t, const step_result *result, report_values *v) {
    for (size_t i = 0; i < model_sample_losses(&t->shape); i++) v->losses[i] = result->losses[i];
}

static void take_evaluation(const trainer *t, const step_evaluation *evaluated, double seconds,
                            report_values *v) {
    v->evaluated = evaluated->done;
    v->eval_loss = evaluated->loss;
    v->eval_accuracy = t->shape.tokens ? -1 : evaluated->accuracy;
    v->eval_s = seconds;
    v->n_losses = model_sample_losses(&t->shape);
    for (size_t i = 0; i < v->n_losses; i++) {
        v->loss_names[i] = model_sample_loss(&t->shape, i).name;
        v->eval_losses[i] = evaluated->losses[i];
    }
}

/* Warns immediately when batches are skipped for the first time, and counts all skipped batches for
 * the message at the end. */
static void warn_skipped(run_report *r, const report_values *v) {
    if (!r->skipped)
        ranks_warn(r->t->rank,
                   "step %" PRIu64 ": %" PRIu64 " %s counts for the loss; this message is not "
                   "repeated, and the number of skipped batches is reported at the end of the run",
                   v->step, v->skipped,
                   v->skipped == 1 ? "batch is skipped, because nothing in it"
                                   : "batches are skipped, because nothing in them");
    r->skipped += v->skipped;
}

void report_step(run_report *r, const step_result *result, const step_evaluation *evaluated) {
    const trainer *t = r->t;
    double now[TIMELINE_SPENT], spent[TIMELINE_SPENT];
    memcpy(now, t->tl.spent, sizeof now);
    for (int i = 0; i < TIMELINE_SPENT; i++) spent[i] = now[i] - r->spent[i];
    const double at = MPI_Wtime(), samples = (double)t->c->batch;
    const fsdp_memory memory = fsdp_plan_memory(&t->plan);
    const uint64_t sent = fsdp_sent_bytes(t->sharded);
    const uint64_t sent_across = fsdp_sent_across_bytes(t->sharded);
    report_values v = {.step = t->state->step,
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
                       .sent_across_bytes = sent_across - r->sent_across,
                       .ranks = t->world,
                       .skipped = result->skipped,
                       .is_proven = result->is_proven,
                       .state_id = result->state_id};
    take_losses(t, result, &v);
    take_evaluation(t, evaluated, spent[TIMELINE_EVALUATE], &v);
    const double training_s = v.step_s - v.eval_s;
    v.tokens_per_s = samples * (double)model_sample_tokens(&t->shape) / training_s;
    if (t->matmul_peak > 0) v.mfu = t->sample_flops * samples / training_s / t->matmul_peak;
    gather_usage(r, v.forward_s + v.backward_s, &v);
    if (t->rank == 0) write_line(r, &v);
    if (v.skipped) warn_skipped(r, &v);
    memcpy(r->spent, now, sizeof now);
    if (r->trace && t->rank == 0) report_trace_step(r->trace, v.step, v.loss, r->line_at, at);
    flush_trace(r);
    r->line_at = at;
    r->sent = sent;
    r->sent_across = sent_across;
    r->steps++;
}

void report_evaluation(run_report *r, const step_evaluation *evaluated, double seconds) {
    dcp_error err;
    report_values v = {.step = r->t->state->step};
    report_exclude_time(r, seconds);
    memcpy(r->spent, r->t->tl.spent, sizeof r->spent);
    if (r->t->rank != 0) return;
    take_evaluation(r->t, evaluated, seconds, &v);
    if (!r->is_mute) note_console(r, report_console_evaluation(&v));
    if (r->lines) note_metrics(r, v.step, report_metrics_add_evaluation(r->lines, &v, &err), &err);
}

enum { OTHER = TIMELINE_SPENT, ROWS };

static const char *const row_names[ROWS] = {
    [TIMELINE_FORWARD] = "forward",
    [TIMELINE_BACKWARD] = "backward",
    [TIMELINE_WAIT] = "waiting for gathers",
    [TIMELINE_REDUCE] = "reductions",
    [TIMELINE_OPTIMIZER] = "norm and optimizer",
    [TIMELINE_STALL] = "waiting for saves",
    [TIMELINE_DATA] = "data",
    [TIMELINE_EVALUATE] = "evaluation",
    [OTHER] = "other",
};
static const int row_order[ROWS] = {TIMELINE_FORWARD, TIMELINE_BACKWARD,  TIMELINE_WAIT,
                                    TIMELINE_REDUCE,  TIMELINE_OPTIMIZER, TIMELINE_STALL,
                                    TIMELINE_DATA,    TIMELINE_EVALUATE,  OTHER};

typedef struct largest { /* MPI_DOUBLE_INT */
    double seconds;
    int rank;
} largest;

/* Reports how the run spent its time. Collective. The run made `steps` steps in `seconds`; nothing
 * is reported for a run without steps. */
static void print_time(const trainer *t, uint64_t steps, double seconds) {
    if (steps == 0) return;
    double sum[ROWS];
    largest most_of[ROWS];
    sum[OTHER] = seconds;
    for (int i = 0; i < TIMELINE_SPENT; i++) {
        sum[i] = t->tl.spent[i];
        sum[OTHER] -= sum[i];
    }
    /* below 0 if a device worked while the host waited and read */
    if (sum[OTHER] < 0) sum[OTHER] = 0;
    for (int i = 0; i < ROWS; i++) most_of[i] = (largest){sum[i], t->rank};
    const bool root = t->rank == 0;
    MPI_Reduce(root ? MPI_IN_PLACE : sum, sum, ROWS, MPI_DOUBLE, MPI_SUM, 0, t->comm);
    MPI_Reduce(root ? MPI_IN_PLACE : most_of, most_of, ROWS, MPI_DOUBLE_INT, MPI_MAXLOC, 0,
               t->comm);
    ranks_info(t->rank, "%" PRIu64 " %s in %.3f s; where the time of %d %s went:", steps,
               steps == 1 ? "step" : "steps", seconds, t->world, t->world == 1 ? "rank" : "ranks");
    ranks_info(t->rank, "%-20s %10s %7s %10s", "", "mean s", "share", "most s");
    for (int i = 0; i < ROWS; i++) {
        const int row = row_order[i];
        const double mean = sum[row] / t->world;
        ranks_info(t->rank, "%-20s %10.3f %5.1f %% %10.3f  rank %d", row_names[row], mean,
                   100 * mean / seconds, most_of[row].seconds, most_of[row].rank);
    }
}

static void print_device_memory(const run_report *r) {
    const trainer *t = r->t;
    uint64_t unused, all, later;
    double most = (double)t->k->peak(t->k);
    const bool root = t->rank == 0;
    MPI_Reduce(root ? MPI_IN_PLACE : &most, &most, 1, MPI_DOUBLE, MPI_MAX, 0, t->comm);
    t->k->room(t->k, &unused, &all, &later);
    if (r->steps && most > 0)
        ranks_info(t->rank,
                   "the device's memory of the largest rank peaked at %.1f MiB; %.1f of %.1f MiB "
                   "of rank 0's device are free",
                   most / 1048576, (double)unused / 1048576, (double)all / 1048576);
}

/* Reports the measured memory beside the predicted memory. */
static void print_memory(const run_report *r) {
    static const char offloaded[] = ", and what the kernel keeps of the offloaded file";
    const trainer *t = r->t;
    double most = (double)peak_bytes();
    const bool root = t->rank == 0;
    MPI_Reduce(root ? MPI_IN_PLACE : &most, &most, 1, MPI_DOUBLE, MPI_MAX, 0, t->comm);
    if (r->steps)
        ranks_info(t->rank,
                   "memory of the largest rank peaked at %.1f MiB; the prediction was %.1f, and up "
                   "to %.1f more for saves that are waited for%s",
                   most / 1048576, (double)t->memory_bytes / 1048576,
                   (double)t->staging_bytes / 1048576, t->c->offload_path ? offloaded : "");
}

int report_end(run_report *r, int status) {
    if (r->t->rank == 0) ranks_bar_finish();
    if (r->skipped)
        ranks_info(r->t->rank,
                   "%" PRIu64 " %s skipped, because nothing in them counts for the loss",
                   r->skipped, r->skipped == 1 ? "batch was" : "batches were");
    if (status == PROGRAM_DONE || status == PROGRAM_STOPPED) {
        step_collect_device_times(r->t);
        print_time(r->t, r->steps, MPI_Wtime() - r->begin);
        print_memory(r);
        print_device_memory(r);
        end_trace(r);
    }
    const bool lost = r->is_mute || !report_trace_is_complete(r->trace);
    report_trace_close(r->trace);
    report_metrics_close(r->lines);
    report_balance_destroy(r->ranks);
    free(r->usage);
    return status == PROGRAM_DONE && lost ? PROGRAM_FAILED : status;
}
