/* The order of gathers, stages and reductions, which is the same on every rank: a rank without a
 * leaf goes through all of it but the computation.
 *
 * Buffers serve twice. Where blocks do not stay, they share one: it holds the parameters of the
 * block at work, and, when its backward is done and they are needed no more, its gradients on their
 * way to their owners. The first staging buffer also sends the root's gradients at the end of a
 * micro-step, when nothing is on its way. */
#include "fsdp.h"

#include <stdlib.h>

#include "../fail.h"
#include "gather.h"
#include "reduce.h"

enum { ROOT = 0, NO_UNIT = -1 };

struct fsdp {
    const model *m;
    const fsdp_layout *layout;
    kernels *k;
    fsdp_plan plan;
    fsdp_leaves leaves;
    float *root, *block, *kept; /* gathered units; NULL where the storage is */
    float *outgoing;            /* where blocks are kept */
    float *root_grads, *block_grads;
    float **whole;             /* [units] where a unit's parameters stand once it is gathered */
    unsigned char *gathered;   /* [units] whether they do */
    size_t last_backward;      /* the stage; nothing that those before it use is trained */
    long in_block;             /* the unit that `block` holds; NO_UNIT */
    size_t to_gather, started; /* blocks of this micro-step, and how far that is */
    const float **places;      /* parameters of the stage at work */
    float **grad_places;       /* and its gradients */
    fsdp_gather gather;
    fsdp_reduce *reduce;
    timeline *tl;
};

static int take(fsdp *f, float **out, uint64_t elems, dcp_error *err) {
    if (elems == 0) return DCP_OK;
    *out = f->k->alloc(f->k, elems * sizeof(float));
    if (!*out) return trainer_fail_memory(err, elems * sizeof(float));
    f->k->zero(f->k, *out, elems);
    return DCP_OK;
}

static int take_places(fsdp *f, dcp_error *err) {
    size_t most = 0;
    for (size_t u = 0; u < model_units(f->m); u++)
        if (model_unit_params(f->m, u) > most) most = model_unit_params(f->m, u);
    f->places = calloc(most, sizeof *f->places);
    f->grad_places = calloc(most, sizeof *f->grad_places);
    f->whole = calloc(f->layout->n, sizeof *f->whole);
    f->gathered = calloc(f->layout->n, sizeof *f->gathered);
    const int ok = f->places && f->grad_places && f->whole && f->gathered;
    return ok ? DCP_OK : trainer_fail_memory(err, most * sizeof *f->places);
}

static int take_staging(fsdp *f, const fsdp_sizes *s, dcp_error *err) {
    f->gather.flights = calloc(s->n_staging + 1, sizeof *f->gather.flights);
    if (!f->gather.flights) return trainer_fail_memory(err, s->n_staging);
    f->gather.n_flights = s->n_staging;
    int status = DCP_OK;
    for (size_t i = 0; i < s->n_staging && !status; i++)
        status = take(f, &f->gather.flights[i].staging, i ? s->staging : s->first_staging, err);
    return status;
}

static int take_buffers(fsdp *f, dcp_error *err) {
    const fsdp_sizes s = fsdp_plan_sizes(&f->plan);
    int status = take_places(f, err);
    if (!status) status = take(f, &f->root_grads, s.root_grads, err);
    if (!status) status = take(f, &f->block_grads, s.block_grads, err);
    if (!status) status = take(f, &f->root, s.root, err);
    if (!status) status = take(f, &f->block, s.block, err);
    if (!status) status = take(f, &f->kept, s.kept_blocks, err);
    if (!status) status = take(f, &f->outgoing, s.outgoing, err);
    return status ? status : take_staging(f, &s, err);
}

static void place_units(fsdp *f, float *params) {
    float *kept = f->kept;
    for (size_t u = 0; u < f->layout->n; u++) {
        if (f->layout->shards == 1) {
            f->whole[u] = params + f->layout->units[u].shard_at;
            f->gathered[u] = 1; /* for good */
        } else if (u == ROOT) {
            f->whole[u] = f->root;
        } else if (!kept) {
            f->whole[u] = f->block;
        } else {
            f->whole[u] = kept;
            kept += f->layout->units[u].whole_elems;
        }
    }
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

int fsdp_create(const model *m, const fsdp_plan *plan, const fsdp_mesh *mesh, kernels *k,
                timeline *tl, float *params, float *grads, fsdp **out, dcp_error *err) {
    fsdp *f = calloc(1, sizeof *f);
    if (!f) return trainer_fail_memory(err, sizeof *f);
    *f = (fsdp){.m = m,
                .layout = plan->layout,
                .k = k,
                .plan = *plan,
                .leaves = fsdp_plan_leaves(plan),
                .in_block = NO_UNIT,
                .tl = tl,
                .gather = {.layout = plan->layout,
                           .comm = mesh->shards,
                           .params = params,
                           .bf16 = plan->strategy.bf16,
                           .k = k,
                           .tl = tl}};
    int status = take_buffers(f, err);
    if (status == DCP_OK) status = fsdp_reduce_create(plan, mesh, k, grads, &f->reduce, err);
    if (status != DCP_OK) {
        fsdp_destroy(f);
        return status;
    }
    place_units(f, params);
    while (!is_trained(f, f->last_backward)) f->last_backward++;
    *out = f;
    return DCP_OK;
}

void fsdp_destroy(fsdp *f) {
    if (!f) return;
    fsdp_reduce_destroy(f->reduce);
    float *const buffers[] = {f->root,     f->block,      f->kept,
                              f->outgoing, f->root_grads, f->block_grads};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) f->k->free(f->k, buffers[i]);
    for (size_t i = 0; i < f->gather.n_flights; i++) f->k->free(f->k, f->gather.flights[i].staging);
    free(f->gather.flights);
    free(f->gathered);
    free(f->whole);
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

void fsdp_poll(void *f) { fsdp_gather_poll(&((fsdp *)f)->gather); }

void fsdp_step_begin(fsdp *f) {
    if (f->layout->shards == 1) return;
    const double start = MPI_Wtime();
    for (size_t u = 0; u < f->layout->n; u++) f->gathered[u] = 0;
    f->gather.oldest = 0; /* its staging buffer is large enough for the root */
    fsdp_gather_start(&f->gather, ROOT);
    fsdp_gather_finish(&f->gather, f->root);
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
    if (f->whole[unit] == f->block) {
        empty_block(f);
        f->in_block = (long)unit;
    }
    fsdp_gather_finish(&f->gather, f->whole[unit]);
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
    return unit == ROOT ? f->root_grads : f->block_grads;
}

/* The places of a stage's parameters and gradients, which are part of a unit's. */
static void point_at(fsdp *f, size_t stage) {
    const size_t part = model_stage_unit(f->m, stage), unit = stage_unit(f, stage);
    const fsdp_param *params = stage_params(f, stage);
    float *grads = unit_grads(f, unit);
    for (size_t i = 0; i < model_unit_params(f->m, part); i++) {
        f->places[i] = f->whole[unit] + params[i].whole_at;
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

/* Where a unit's gradients are put in rank order: the parameters that are there are needed no more.
 */
static float *scratch_of(const fsdp *f, size_t unit) {
    if (f->layout->shards == 1) return NULL;
    if (f->outgoing) return f->outgoing;
    return unit == ROOT ? f->gather.flights[0].staging : f->block;
}

/* The leaf's gradients of a unit go to their owners. */
static void reduce(fsdp *f, size_t unit, uint64_t micro) {
    const double start = MPI_Wtime();
    if (unit != ROOT) empty_block(f);
    fsdp_reduce_unit(f->reduce, unit, micro, unit_grads(f, unit), scratch_of(f, unit));
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
