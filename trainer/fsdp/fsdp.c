/* The order of gathers, stages and reductions, which is the same on every rank: a rank without a
 * leaf goes through all of it but the computation.
 *
 * Where blocks do not stay, they share one buffer. A block's gradients travel while the next one's
 * are computed. The first staging buffer also sends the root's gradients at the end of a
 * micro-step, when nothing is on its way. */
#include "fsdp.h"

#include <stdlib.h>

#include "../fail.h"
#include "buffers.h"
#include "gather.h"
#include "reduce.h"

enum { ROOT = 0, NO_UNIT = -1 };

struct fsdp {
    const model *m;
    const fsdp_layout *layout;
    fsdp_plan plan;
    kernels *k;
    timeline *tl;
    fsdp_leaves leaves;
    fsdp_buffers buffers;
    unsigned char *gathered;   /* [units] whether their parameters stand whole */
    size_t last_backward;      /* the stage; nothing that those before it use is trained */
    long in_block;             /* the unit that the blocks' buffer holds; NO_UNIT */
    size_t to_gather, started; /* blocks of this micro-step, and how far that is */
    const float **places;      /* parameters of the stage at work */
    float **grad_places;       /* and its gradients */
    fsdp_gather gather;
    fsdp_reduce *reduce;
};

static int take_places(fsdp *f, dcp_error *err) {
    size_t most = 0;
    for (size_t u = 0; u < model_units(f->m); u++)
        if (model_unit_params(f->m, u) > most) most = model_unit_params(f->m, u);
    f->places = calloc(most, sizeof *f->places);
    f->grad_places = calloc(most, sizeof *f->grad_places);
    f->gathered = calloc(f->layout->n, sizeof *f->gathered);
    if (!f->places || !f->grad_places || !f->gathered)
        return trainer_fail_memory(err, most * sizeof *f->places);
    for (size_t u = 0; u < f->layout->n; u++)
        f->gathered[u] = f->layout->shards == 1; /* for good */
    return DCP_OK;
}

static size_t stage_unit(const fsdp *f, size_t stage) {
    return f->layout->unit_of[model_stage_unit(f->m, stage)];
}

static const fsdp_param *stage_params(const fsdp *f, size_t stage) {
    const size_t first = f->layout->first_of[model_stage_unit(f->m, stage)];
    return f->layout->units[stage_unit(f, stage)].params + first;
}

static int is_trained(const fsdp *f, size_t stage) {
    const fsdp_param *params = stage_params(f, stage);
    const size_t n = model_unit_params(f->m, model_stage_unit(f->m, stage));
    for (size_t i = 0; i < n; i++)
        if (!params[i].info.frozen && model_stage_uses(f->m, stage, i)) return 1;
    return 0;
}

int fsdp_create(const model *m, const fsdp_plan *plan, fsdp_transport *transport, kernels *k,
                timeline *tl, float *params, float *grads, fsdp **out, dcp_error *err) {
    fsdp *f = calloc(1, sizeof *f);
    if (!f) return trainer_fail_memory(err, sizeof *f);
    *f = (fsdp){.m = m,
                .layout = plan->layout,
                .plan = *plan,
                .k = k,
                .tl = tl,
                .leaves = fsdp_plan_leaves(plan),
                .in_block = NO_UNIT};
    int status = take_places(f, err);
    if (status == DCP_OK) status = fsdp_buffers_create(plan, k, params, &f->buffers, err);
    if (status == DCP_OK)
        status = fsdp_reduce_create(plan, transport, k, tl, grads, &f->reduce, err);
    if (status != DCP_OK) {
        fsdp_destroy(f);
        return status;
    }
    f->gather = (fsdp_gather){.layout = plan->layout,
                              .transport = transport,
                              .params = params,
                              .flights = f->buffers.flights,
                              .n_flights = f->buffers.n_flights,
                              .bf16 = plan->strategy.bf16,
                              .k = k,
                              .tl = tl};
    while (!is_trained(f, f->last_backward)) f->last_backward++;
    *out = f;
    return DCP_OK;
}

void fsdp_destroy(fsdp *f) {
    if (!f) return;
    fsdp_reduce_destroy(f->reduce);
    fsdp_buffers_destroy(&f->buffers);
    free(f->gathered);
    free(f->places);
    free(f->grad_places);
    free(f);
}

uint64_t fsdp_micro_steps(const fsdp *f) { return fsdp_leaves_micro_steps(&f->leaves); }
uint64_t fsdp_own_leaf(const fsdp *f, uint64_t micro) {
    return fsdp_leaf(&f->leaves, f->layout->rank, micro);
}
uint64_t fsdp_sent_bytes(const fsdp *f) {
    return f->gather.sent + fsdp_reduce_sent_bytes(f->reduce);
}

void fsdp_poll(void *ctx) {
    fsdp *f = ctx;
    fsdp_gather_poll(&f->gather);
    fsdp_reduce_poll(f->reduce);
}

void fsdp_step_begin(fsdp *f) {
    if (f->layout->shards == 1) return;
    const double start = MPI_Wtime();
    for (size_t u = 0; u < f->layout->n; u++) f->gathered[u] = 0;
    f->gather.oldest = 0; /* its staging buffer is large enough for the root */
    fsdp_gather_start(&f->gather, ROOT);
    fsdp_gather_finish(&f->gather, f->buffers.root);
    f->gathered[ROOT] = 1;
    timeline_add(f->tl, TIMELINE_WAIT, ROOT, start, MPI_Wtime());
}

static void start_next(fsdp *f) {
    fsdp_gather_start(&f->gather, fsdp_plan_gather(&f->plan, f->started++));
}

/* What the shared buffer held is gone. */
static void empty_block(fsdp *f) {
    if (f->in_block != NO_UNIT) f->gathered[f->in_block] = 0;
    f->in_block = NO_UNIT;
}

static void finish_gather(fsdp *f, size_t unit) {
    if (f->buffers.whole[unit] == f->buffers.block) {
        empty_block(f);
        f->in_block = (long)unit;
    }
    fsdp_gather_finish(&f->gather, f->buffers.whole[unit]);
    f->gathered[unit] = 1;
}

/* Makes the unit's parameters whole, and sends for blocks that come next. */
static void hold(fsdp *f, size_t unit) {
    const uint64_t ahead = f->plan.strategy.prefetch;
    if (!f->gathered[unit]) {
        if (f->gather.flying == 0) start_next(f);
        finish_gather(f, unit);
    }
    while (f->started < f->to_gather && f->gather.flying < f->gather.n_flights &&
           f->gather.flying < ahead)
        start_next(f);
}

static float *unit_grads(const fsdp *f, size_t unit) {
    return unit == ROOT ? f->buffers.root_grads : f->buffers.block_grads;
}

/* The places of a stage's parameters and gradients, which are part of a unit's. */
static void point_at(fsdp *f, size_t stage) {
    const size_t part = model_stage_unit(f->m, stage), unit = stage_unit(f, stage);
    const fsdp_param *params = stage_params(f, stage);
    float *grads = unit_grads(f, unit);
    for (size_t i = 0; i < model_unit_params(f->m, part); i++) {
        f->places[i] = f->buffers.whole[unit] + params[i].whole_at;
        f->grad_places[i] = params[i].info.frozen ? NULL : grads + params[i].whole_at;
    }
}

static void forward(fsdp *f, model_run *run) {
    for (size_t stage = 0; stage < model_stages(f->m); stage++) {
        const double start = MPI_Wtime();
        const size_t unit = stage_unit(f, stage);
        hold(f, unit);
        const double held = MPI_Wtime();
        point_at(f, stage);
        if (run) model_forward(run, stage, f->places);
        timeline_add(f->tl, TIMELINE_WAIT, (long)unit, start, held);
        timeline_add(f->tl, TIMELINE_FORWARD, (long)unit, held, MPI_Wtime());
    }
}

/* Where a unit's gradients are put for their way. The root's go when nothing is on its way to this
 * rank; a block's in place of its parameters, unless it needs a buffer of its own. */
static float *scratch_of(fsdp *f, size_t unit) {
    const int is_cut = f->layout->shards > 1;
    if (unit == ROOT) return is_cut ? f->buffers.flights[0].staging : NULL;
    if (f->buffers.outgoing || !is_cut) return f->buffers.outgoing;
    empty_block(f);
    return f->buffers.block;
}

/* The leaf's gradients of a unit are sent to their owners; those of the unit before are there. */
static void reduce(fsdp *f, size_t unit, uint64_t micro) {
    const double start = MPI_Wtime();
    fsdp_reduce_start(f->reduce, unit, micro, unit_grads(f, unit), scratch_of(f, unit));
    if (!f->plan.strategy.overlap || unit == ROOT) fsdp_reduce_finish(f->reduce);
    timeline_add(f->tl, TIMELINE_REDUCE, (long)unit, start, MPI_Wtime());
}

static void zero_grads(fsdp *f, size_t unit) {
    const uint64_t elems = f->layout->units[unit].whole_grad_elems;
    if (elems > 0) f->k->zero(f->k, unit_grads(f, unit), elems);
}

/* Whether a unit's backward begins with this stage: the stage after it is another unit's. */
static int begins_unit(const fsdp *f, size_t stage) {
    const size_t unit = stage_unit(f, stage);
    if (unit == ROOT) return stage + 1 == model_stages(f->m);
    return stage_unit(f, stage + 1) != unit;
}

/* Whether a unit's backward ends with it. */
static int ends_unit(const fsdp *f, size_t stage) {
    const size_t unit = stage_unit(f, stage);
    if (unit == ROOT) return stage == 0;
    return stage_unit(f, stage - 1) != unit;
}

static void backward(fsdp *f, model_run *run, uint64_t micro) {
    for (size_t stage = model_stages(f->m); stage-- > 0;) {
        const size_t unit = stage_unit(f, stage);
        const double start = MPI_Wtime();
        hold(f, unit);
        const double held = MPI_Wtime();
        if (run && begins_unit(f, stage)) zero_grads(f, unit);
        point_at(f, stage);
        if (run && stage >= f->last_backward) model_backward(run, stage, f->places, f->grad_places);
        timeline_add(f->tl, TIMELINE_WAIT, (long)unit, start, held);
        timeline_add(f->tl, TIMELINE_BACKWARD, (long)unit, held, MPI_Wtime());
        if (ends_unit(f, stage)) reduce(f, unit, micro);
    }
}

void fsdp_evaluate(fsdp *f, model_run *run) {
    const size_t blocks = f->layout->n - 1;
    empty_block(f);
    f->started = 0;
    f->to_gather = f->gathered[blocks] ? 0 : blocks;
    forward(f, run);
}

void fsdp_micro_step(fsdp *f, uint64_t micro, model_run *run) {
    empty_block(f);
    f->started = 0;
    f->to_gather = fsdp_plan_gathers(&f->plan, micro);
    forward(f, run);
    backward(f, run, micro);
}
