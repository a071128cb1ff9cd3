/* The order of gathers, stages and reductions, which is the same on every rank: a rank without a
 * micro-batch does everything but the computation. A block's gradients travel while the next
 * block's gradients are computed; the root's gradients travel at the end of a micro-step. */
#include "fsdp/fsdp.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fsdp/fsdp_plan.h"
#include "fsdp/gather.h"
#include "fsdp/reduce.h"
#include "fsdp/shard_layout.h"
#include "models/model_run.h"
#include "programs/fail.h"
#include "timeline/timeline.h"

enum { ROOT = 0, NO_UNIT = -1 };

struct fsdp {
    const model *m;
    const fsdp_layout *layout;
    fsdp_plan plan;
    kernels *k;
    timeline *tl;
    fsdp_micro_batches batches;
    const float **whole;       /* [units] parameters of the gathered units, otherwise NULL */
    size_t last_backward;      /* the last stage of the backward pass: no earlier one is trained */
    long in_block;             /* the gathered block if blocks are dropped after use, or NO_UNIT */
    size_t to_gather, started; /* gathers in this micro-step, and how many have started */
    const float **places;      /* parameters of the current stage */
    float **grad_places;       /* gradients of the current stage */
    uint64_t micro;            /* the current micro-step */
    float *grads;              /* this rank's storage */
    float *root_grads, *block_grads;
    float *outgoing;     /* a unit's gradients in flight; NULL if none need a buffer */
    fsdp_gather *gather; /* NULL if the storage itself is the gathered model */
    fsdp_reduce *reduce;
    void (*done)(void *ctx, size_t unit); /* may be NULL */
    void *done_ctx;
};

/* Returns true if the storage itself is the gathered model. */
static bool in_storage(const fsdp *f) { return f->layout->shards == 1 && !f->plan.is_on_host; }

static int take_places(fsdp *f, const float *params, dcp_error *err) {
    size_t most = 0;
    for (size_t u = 0; u < model_units(f->m); u++)
        if (model_unit_params(f->m, u) > most) most = model_unit_params(f->m, u);
    f->places = calloc(most, sizeof *f->places);
    f->grad_places = calloc(most, sizeof *f->grad_places);
    f->whole = calloc(f->layout->n, sizeof *f->whole);
    if (!f->places || !f->grad_places || !f->whole)
        return core_fail_memory(err, most * sizeof *f->places);
    for (size_t u = 0; u < f->layout->n && in_storage(f); u++)
        f->whole[u] = params + f->layout->units[u].param_at; /* remains valid: it is the storage */
    return DCP_OK;
}

static int take_gradients(fsdp *f, dcp_error *err) {
    const fsdp_sizes s = fsdp_plan_sizes(&f->plan);
    int status = fsdp_alloc(f->k, &f->root_grads, s.root_grads, err);
    if (!status) status = fsdp_alloc(f->k, &f->block_grads, s.block_grads, err);
    if (!status) status = fsdp_alloc(f->k, &f->outgoing, s.outgoing, err);
    return status;
}

static int make_gather(fsdp *f, const fsdp_ways *ways, float *params, dcp_error *err) {
    const fsdp_gather_of of = {.layout = f->layout,
                               .params = params,
                               .bf16 = f->plan.strategy.bf16,
                               .k = f->k,
                               .tl = f->tl};
    if (in_storage(f)) return DCP_OK;
    if (f->plan.is_shared)
        return fsdp_gather_in_shared_memory(&f->plan, ways->mesh->shards, ways->shared, &of,
                                            &f->gather, err);
    return fsdp_gather_by_messages(&f->plan, ways->transport, &of, &f->gather, err);
}

static size_t stage_unit(const fsdp *f, size_t stage) {
    return f->layout->unit_of[model_stage_unit(f->m, stage)];
}

static const fsdp_param *stage_params(const fsdp *f, size_t stage) {
    const size_t first = f->layout->first_of[model_stage_unit(f->m, stage)];
    return f->layout->units[stage_unit(f, stage)].params + first;
}

static bool is_trained(const fsdp *f, size_t stage) {
    const fsdp_param *params = stage_params(f, stage);
    const size_t n = model_unit_params(f->m, model_stage_unit(f->m, stage));
    for (size_t i = 0; i < n; i++)
        if (!params[i].info.frozen && model_stage_uses(f->m, stage, i)) return true;
    return false;
}

int fsdp_create(const model *m, const fsdp_plan *plan, const fsdp_ways *ways, kernels *k,
                timeline *tl, float *params, float *grads, fsdp **out, dcp_error *err) {
    fsdp *f = calloc(1, sizeof *f);
    if (!f) return core_fail_memory(err, sizeof *f);
    *f = (fsdp){.m = m,
                .layout = plan->layout,
                .plan = *plan,
                .k = k,
                .tl = tl,
                .batches = fsdp_plan_micro_batches(plan),
                .grads = grads,
                .in_block = NO_UNIT};
    int status = take_places(f, params, err);
    if (!status) status = take_gradients(f, err);
    if (!status) status = make_gather(f, ways, params, err);
    if (!status) status = fsdp_reduce_create(plan, ways->transport, k, tl, grads, &f->reduce, err);
    if (status != DCP_OK) {
        fsdp_destroy(f);
        return status;
    }
    while (!is_trained(f, f->last_backward)) f->last_backward++;
    *out = f;
    return DCP_OK;
}

void fsdp_destroy(fsdp *f) {
    if (!f) return;
    fsdp_reduce_destroy(f->reduce);
    if (f->gather) f->gather->destroy(f->gather);
    f->k->free(f->k, f->root_grads);
    f->k->free(f->k, f->block_grads);
    f->k->free(f->k, f->outgoing);
    free(f->whole);
    free(f->places);
    free(f->grad_places);
    free(f);
}

uint64_t fsdp_micro_steps(const fsdp *f) { return fsdp_micro_batches_steps(&f->batches); }
uint64_t fsdp_own_micro_batch(const fsdp *f, uint64_t micro) {
    return fsdp_micro_batch_of(&f->batches, f->layout->rank, micro);
}
uint64_t fsdp_sent_bytes(const fsdp *f) {
    return (f->gather ? f->gather->sent : 0) + fsdp_reduce_sent_bytes(f->reduce);
}
uint64_t fsdp_sent_across_bytes(const fsdp *f) { return fsdp_reduce_across_bytes(f->reduce); }

void fsdp_set_done(fsdp *f, void (*done)(void *ctx, size_t unit), void *ctx) {
    f->done = done;
    f->done_ctx = ctx;
}

static void is_done(const fsdp *f, size_t unit) {
    if (f->done) f->done(f->done_ctx, unit);
}

void fsdp_poll(void *ctx) {
    fsdp *f = ctx;
    if (f->gather) f->gather->poll(f->gather);
    fsdp_reduce_poll(f->reduce);
}

static void drop_unit(fsdp *f, size_t unit) {
    if (f->whole[unit] && f->gather->release) f->gather->release(f->gather, unit);
    f->whole[unit] = NULL;
}

/* At most one of the blocks that are dropped after use is gathered at a time. */
static void drop_block(fsdp *f) {
    if (f->in_block != NO_UNIT) drop_unit(f, (size_t)f->in_block);
    f->in_block = NO_UNIT;
}

void fsdp_step_begin(fsdp *f) {
    const double start = MPI_Wtime();
    if (!f->gather) return;
    for (size_t u = 0; u < f->layout->n; u++) drop_unit(f, u);
    f->in_block = NO_UNIT;
    f->gather->start(f->gather, ROOT);
    f->whole[ROOT] = f->gather->finish(f->gather);
    is_done(f, ROOT);
    timeline_add(f->tl, TIMELINE_WAIT, ROOT, start, MPI_Wtime());
}

static void start_next(fsdp *f) {
    assert(f->started < f->to_gather);
    f->gather->start(f->gather, fsdp_plan_gather(&f->plan, f->started++));
}

static void finish_gather(fsdp *f, size_t unit) {
    if (!f->plan.strategy.keep_params) {
        drop_block(f);
        f->in_block = (long)unit;
    }
    f->whole[unit] = f->gather->finish(f->gather);
    is_done(f, unit);
}

/* Waits until the unit's parameters are gathered, and starts gathering the blocks that follow. */
static void hold_unit(fsdp *f, size_t unit) {
    const uint64_t ahead = f->plan.strategy.prefetch;
    if (!f->whole[unit]) {
        if (f->gather->in_flight == 0) start_next(f);
        finish_gather(f, unit);
    }
    while (f->started < f->to_gather && f->gather->in_flight < f->gather->most_in_flight &&
           f->gather->in_flight < ahead)
        start_next(f);
}

/* Returns the memory in which a unit's gradients of a micro-batch are computed. On a single rank,
 * the storage has the layout of the whole unit and receives the sum, so the gradients of the first
 * micro-batch are computed there. */
static float *unit_grads(const fsdp *f, size_t unit) {
    if (f->layout->world == 1 && f->micro == 0) return f->grads + f->layout->units[unit].grad_at;
    return unit == ROOT ? f->root_grads : f->block_grads;
}

/* Finds a stage's parameters and gradients within its unit's parameters and gradients. */
static void point_at(fsdp *f, size_t stage) {
    const size_t part = model_stage_unit(f->m, stage), unit = stage_unit(f, stage);
    const fsdp_param *params = stage_params(f, stage);
    float *grads = unit_grads(f, unit);
    assert(f->whole[unit]);
    for (size_t i = 0; i < model_unit_params(f->m, part); i++) {
        f->places[i] = f->whole[unit] + params[i].whole_at;
        f->grad_places[i] = params[i].info.frozen ? NULL : grads + params[i].whole_at;
    }
}

_Static_assert((int)TIMELINE_SPENT <= (int)KERNELS_SPANS,
               "every timed kind of work (timeline_kind) is a valid span number of the kernels");

/* Informs the kernels which kind of work follows. TIMELINE_SPENT: work that is not timed. */
static void begin_span(const fsdp *f, timeline_kind kind) {
    f->k->span(f->k, kind == TIMELINE_SPENT ? KERNELS_NO_SPAN : (unsigned)kind);
}

static void run_forward(fsdp *f, model_run *run, timeline_kind span) {
    for (size_t stage = 0; stage < model_stages(f->m); stage++) {
        const double start = MPI_Wtime();
        const size_t unit = stage_unit(f, stage);
        hold_unit(f, unit);
        const double held = MPI_Wtime();
        point_at(f, stage);
        begin_span(f, span);
        if (run) model_forward(run, stage, f->places);
        begin_span(f, TIMELINE_SPENT);
        if (!f->gather) is_done(f, unit);
        timeline_add(f->tl, TIMELINE_WAIT, (long)unit, start, held);
        timeline_add(f->tl, TIMELINE_FORWARD, (long)unit, held, MPI_Wtime());
    }
}

/* Returns the buffer from which a unit's gradients are sent. May be NULL if there is only one
 * shard, which is the whole unit (fsdp_reduce_start). */
static float *scratch_of(fsdp *f, size_t unit) {
    const bool is_root = unit == ROOT;
    if (f->layout->shards == 1) return is_root ? NULL : f->outgoing;
    if (f->outgoing && (!is_root || f->plan.is_shared)) return f->outgoing;
    if (!is_root) drop_block(f);
    return f->gather->gradient_buffer ? f->gather->gradient_buffer(f->gather, unit) : NULL;
}

/* Starts sending a unit's gradients of the micro-batch to their owners, after waiting for the
 * previous unit's gradients. */
static void reduce_unit(fsdp *f, size_t unit, uint64_t micro) {
    const double start = MPI_Wtime();
    fsdp_reduce_start(f->reduce, unit, micro, unit_grads(f, unit), scratch_of(f, unit));
    if (!f->plan.strategy.overlap || unit == ROOT) fsdp_reduce_finish(f->reduce);
    timeline_add(f->tl, TIMELINE_REDUCE, (long)unit, start, MPI_Wtime());
}

static void zero_grads(fsdp *f, size_t unit) {
    const uint64_t elems = f->layout->units[unit].whole_grad_elems;
    if (elems > 0) f->k->zero(f->k, unit_grads(f, unit), elems);
}

/* Returns true if a unit's backward pass begins with this stage, that is, if the next stage belongs
 * to another unit. */
static bool begins_unit(const fsdp *f, size_t stage) {
    const size_t unit = stage_unit(f, stage);
    if (unit == ROOT) return stage + 1 == model_stages(f->m);
    return stage_unit(f, stage + 1) != unit;
}

/* Returns true if a unit's backward pass ends with this stage. */
static bool ends_unit(const fsdp *f, size_t stage) {
    const size_t unit = stage_unit(f, stage);
    if (unit == ROOT) return stage == 0;
    return stage_unit(f, stage - 1) != unit;
}

static void run_backward(fsdp *f, model_run *run, uint64_t micro) {
    for (size_t stage = model_stages(f->m); stage-- > 0;) {
        const size_t unit = stage_unit(f, stage);
        const double start = MPI_Wtime();
        hold_unit(f, unit);
        const double held = MPI_Wtime();
        begin_span(f, TIMELINE_BACKWARD);
        if (run && begins_unit(f, stage)) zero_grads(f, unit);
        point_at(f, stage);
        if (run && stage >= f->last_backward) model_backward(run, stage, f->places, f->grad_places);
        begin_span(f, TIMELINE_SPENT);
        if (!f->gather) is_done(f, unit);
        timeline_add(f->tl, TIMELINE_WAIT, (long)unit, start, held);
        timeline_add(f->tl, TIMELINE_BACKWARD, (long)unit, held, MPI_Wtime());
        if (ends_unit(f, stage)) reduce_unit(f, unit, micro);
    }
}

void fsdp_evaluate(fsdp *f, model_run *run) {
    const size_t blocks = f->layout->n - 1;
    drop_block(f);
    f->started = 0;
    f->to_gather = f->whole[blocks] ? 0 : blocks;
    run_forward(f, run, TIMELINE_EVALUATE);
}

void fsdp_micro_step(fsdp *f, uint64_t micro, model_run *run) {
    assert(micro < fsdp_micro_steps(f));
    drop_block(f);
    f->micro = micro;
    f->started = 0;
    f->to_gather = fsdp_plan_gathers(&f->plan, micro);
    run_forward(f, run, TIMELINE_FORWARD);
    run_backward(f, run, micro);
}
