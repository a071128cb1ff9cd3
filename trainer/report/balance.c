#include "report/balance.h"

#include <stdlib.h>

static const double more = 1.2, alike = 1.1;
static const double least_s = 0.01 * REPORT_BALANCE_STEPS, least_bytes = 64 << 20;
enum { MOST_STEPS = 8 }; /* of a window */

typedef struct balance_rank {
    double micro_batches; /* of a step */
    double micro_batch_s; /* a micro-batch's time, summed over the window */
    int slow_steps;
    int is[REPORT_BALANCE_KINDS]; /* as was told */
} balance_rank;

struct report_balance {
    int world, working; /* ranks; those with micro-batches */
    int steps;          /* of this window */
    report_balance_tell_fn tell;
    void *ctx;
    balance_rank ranks[];
};

report_balance *report_balance_create(const fsdp_micro_batches *micro_batches,
                                      report_balance_tell_fn tell, void *ctx) {
    const int world = micro_batches->world;
    report_balance *b = calloc(1, sizeof *b + (size_t)world * sizeof *b->ranks);
    if (!b) return NULL;
    *b = (report_balance){.world = world, .tell = tell, .ctx = ctx};
    for (int r = 0; r < world && fsdp_micro_batch_of(micro_batches, r, 0) < micro_batches->n;
         r++, b->working++)
        while (fsdp_micro_batch_of(micro_batches, r, (uint64_t)b->ranks[r].micro_batches) <
               micro_batches->n)
            b->ranks[r].micro_batches++;
    return b;
}

void report_balance_destroy(report_balance *b) { free(b); }

static void judge_ratio(report_balance *b, int rank, report_balance_kind kind, int exceeds,
                        double ratio) {
    int *is = &b->ranks[rank].is[kind];
    if (*is ? ratio >= alike : !exceeds) return;
    *is = !*is;
    b->tell(b->ctx, rank, kind, *is, ratio);
}

/* One step's times; those of ranks without micro-batches say nothing. */
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
