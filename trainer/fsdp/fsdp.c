/* The order of gathers, stages and reductions, which is the same on every rank: a rank without a
 * leaf goes through all of it but the computation.
 *
 * Two buffers serve twice. `block` holds the parameters of the block at work, and, when its
 * backward is done and they are needed no more, its gradients on their way to their owners.
 * `staging` receives the next unit, and sends the root's gradients at the end of a micro-step, when
 * nothing is on its way. */
#include "fsdp.h"

#include <stdlib.h>

#include "../fail.h"
#include "gather.h"
#include "globs.h"
#include "reduce.h"

enum { ROOT = 0 };

struct fsdp {
    const model *m;
    const fsdp_layout *layout;
    kernels *k;
    int prefetch;
    float *params;                   /* the storage */
    float *root, *block;             /* gathered units; on one rank root is in the storage */
    float *root_grads, *block_grads; /* a leaf's, whole */
    float *staging;
    long held;             /* the unit in `block`; FSDP_NO_UNIT */
    const float **places;  /* parameters of the unit at work */
    float **grad_places;   /* and its gradients */
    uint64_t buffer_bytes; /* of the five above */
    fsdp_gather gather;
    fsdp_reduce *reduce;
    timeline *tl;
};

static int check_frozen(const json_t *frozen, const fsdp_layout *layout, dcp_error *err) {
    const int status = globs_check(layout, "frozen", frozen, err);
    if (status != DCP_OK || layout->trained_params > 0) return status;
    return trainer_fail(err, DCP_ERR_ARG,
                        "frozen: matches every parameter of the model; nothing is left to train");
}

int fsdp_layout_of_model(const model *m, const json_t *frozen, int rank, int world,
                         fsdp_layout **out, dcp_error *err) {
    const size_t n_units = model_units(m);
    size_t n = 0;
    for (size_t u = 0; u < n_units; u++) n += model_unit_params(m, u);
    model_param *params = malloc(n * sizeof *params);
    size_t *counts = malloc(n_units * sizeof *counts);
    int status = params && counts ? DCP_OK : trainer_fail_memory(err, n * sizeof *params);
    for (size_t u = 0, at = 0; u < n_units && status == DCP_OK; u++) {
        counts[u] = model_unit_params(m, u);
        for (size_t i = 0; i < counts[u]; i++, at++) {
            params[at] = *model_unit_param(m, u, i);
            params[at].frozen = globs_match(frozen, params[at].name);
        }
    }
    if (status == DCP_OK)
        status = fsdp_layout_create(params, counts, n_units, rank, world, out, err);
    free(params);
    free(counts);
    if (status != DCP_OK) return status;
    status = check_frozen(frozen, *out, err);
    if (status == DCP_OK) return DCP_OK;
    fsdp_layout_destroy(*out);
    *out = NULL;
    return status;
}

/* The largest gradient of the units first ... n - 1. */
static uint64_t largest_grads(const fsdp_layout *layout, size_t first) {
    uint64_t most = 0;
    for (size_t u = first; u < layout->n; u++)
        if (layout->units[u].whole_grad_elems > most) most = layout->units[u].whole_grad_elems;
    return most;
}

/* The largest of the units first ... n - 1, with every rank's gaps. */
static uint64_t largest(const fsdp_layout *layout, size_t first) {
    uint64_t most = 0;
    for (size_t u = first; u < layout->n; u++) {
        const fsdp_unit *unit = &layout->units[u];
        const uint64_t n =
            unit->whole_elems > unit->gathered_elems ? unit->whole_elems : unit->gathered_elems;
        if (n > most) most = n;
    }
    return most;
}

static int take(fsdp *f, float **out, uint64_t elems, dcp_error *err) {
    *out = f->k->alloc(f->k, elems * sizeof(float));
    if (!*out) return trainer_fail_memory(err, elems * sizeof(float));
    f->k->zero(f->k, *out, elems);
    f->buffer_bytes += elems * sizeof(float);
    return DCP_OK;
}

static int take_places(fsdp *f, dcp_error *err) {
    size_t most = 0;
    for (size_t u = 0; u < f->layout->n; u++)
        if (f->layout->units[u].n > most) most = f->layout->units[u].n;
    f->places = calloc(most, sizeof *f->places);
    f->grad_places = calloc(most, sizeof *f->grad_places);
    return f->places && f->grad_places ? DCP_OK : trainer_fail_memory(err, most);
}

static int take_buffers(fsdp *f, dcp_error *err) {
    const fsdp_layout *layout = f->layout;
    const int sharded = layout->world > 1;
    int status = take_places(f, err);
    if (!status) status = take(f, &f->root_grads, layout->units[ROOT].whole_grad_elems, err);
    if (!status) status = take(f, &f->block_grads, largest_grads(layout, 1), err);
    if (!status && sharded) status = take(f, &f->root, layout->units[ROOT].whole_elems, err);
    if (!status && sharded) status = take(f, &f->block, largest(layout, 1), err);
    if (!status && sharded) status = take(f, &f->staging, largest(layout, 0), err);
    return status;
}

int fsdp_create(const model *m, const fsdp_layout *layout, kernels *k, MPI_Comm comm,
                const fsdp_options *options, float *params, float *grads, fsdp **out,
                dcp_error *err) {
    fsdp *f = calloc(1, sizeof *f);
    if (!f) return trainer_fail_memory(err, sizeof *f);
    *f = (fsdp){.m = m,
                .layout = layout,
                .k = k,
                .prefetch = options->prefetch,
                .params = params,
                .tl = options->tl};
    int status = take_buffers(f, err);
    if (status == DCP_OK)
        status = fsdp_reduce_create(layout, k, comm, options->leaves, grads, &f->reduce, err);
    if (status != DCP_OK) {
        fsdp_destroy(f);
        return status;
    }
    f->held = FSDP_NO_UNIT;
    f->gather = (fsdp_gather){.layout = layout,
                              .comm = comm,
                              .params = params,
                              .staging = f->staging,
                              .request = MPI_REQUEST_NULL,
                              .tl = options->tl,
                              .unit = FSDP_NO_UNIT};
    *out = f;
    return DCP_OK;
}

void fsdp_destroy(fsdp *f) {
    if (!f) return;
    fsdp_reduce_destroy(f->reduce);
    float *const buffers[] = {f->root, f->block, f->root_grads, f->block_grads, f->staging};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) f->k->free(f->k, buffers[i]);
    free(f->places);
    free(f->grad_places);
    free(f);
}

uint64_t fsdp_micro_steps(const fsdp *f) { return fsdp_reduce_micro_steps(f->reduce); }
uint64_t fsdp_partial_bytes(const fsdp *f) { return fsdp_reduce_partial_bytes(f->reduce); }
uint64_t fsdp_buffer_bytes(const fsdp *f) {
    return f->buffer_bytes + fsdp_reduce_received_bytes(f->reduce);
}

void fsdp_poll(void *f) { fsdp_gather_poll(&((fsdp *)f)->gather); }

void fsdp_step_begin(fsdp *f) {
    f->held = FSDP_NO_UNIT;
    if (f->layout->world == 1) return;
    const double start = MPI_Wtime();
    fsdp_gather_start(&f->gather, ROOT);
    fsdp_gather_finish(&f->gather, f->root);
    timeline_add(f->tl, TIMELINE_WAIT, ROOT, start, MPI_Wtime());
}

/* Makes the unit's parameters whole, and sends for the block that comes `next`. */
static void hold(fsdp *f, size_t unit, size_t next) {
    if (f->layout->world == 1) return;
    if (unit != ROOT && f->held != (long)unit) {
        if (f->gather.unit == FSDP_NO_UNIT) fsdp_gather_start(&f->gather, unit);
        fsdp_gather_finish(&f->gather, f->block);
        f->held = (long)unit;
    }
    if (f->prefetch && next != ROOT && f->held != (long)next && f->gather.unit == FSDP_NO_UNIT)
        fsdp_gather_start(&f->gather, next);
}

static const float *whole_unit(const fsdp *f, size_t unit) {
    if (f->layout->world == 1) return f->params + f->layout->units[unit].shard_at;
    return unit == ROOT ? f->root : f->block;
}

static float *unit_grads(const fsdp *f, size_t unit) {
    return unit == ROOT ? f->root_grads : f->block_grads;
}

static void point_at(fsdp *f, size_t unit) {
    const float *whole = whole_unit(f, unit);
    float *grads = unit_grads(f, unit);
    for (size_t i = 0; i < f->layout->units[unit].n; i++) {
        const fsdp_param *param = &f->layout->units[unit].params[i];
        f->places[i] = whole + param->whole_at;
        f->grad_places[i] = param->info.frozen ? NULL : grads + param->whole_at;
    }
}

static void forward(fsdp *f, model_run *run) {
    const size_t stages = model_stages(f->m);
    for (size_t stage = 0; stage < stages; stage++) {
        const size_t unit = model_stage_unit(f->m, stage);
        const double start = MPI_Wtime();
        hold(f, unit, stage + 1 < stages ? model_stage_unit(f->m, stage + 1) : ROOT);
        const double held = MPI_Wtime();
        point_at(f, unit);
        if (run) model_forward(run, stage, f->places);
        timeline_add(f->tl, TIMELINE_WAIT, (long)unit, start, held);
        timeline_add(f->tl, TIMELINE_FORWARD, (long)unit, held, MPI_Wtime());
    }
}

/* The leaf's gradients of a unit go to their owners; the scratch's parameters are gone after it. */
static void reduce(fsdp *f, size_t unit, uint64_t micro) {
    const double start = MPI_Wtime();
    float *scratch = unit == ROOT ? f->staging : f->block;
    fsdp_reduce_unit(f->reduce, unit, micro, unit_grads(f, unit), scratch);
    if (unit != ROOT) f->held = FSDP_NO_UNIT;
    timeline_add(f->tl, TIMELINE_REDUCE, (long)unit, start, MPI_Wtime());
}

static void backward_stage(fsdp *f, model_run *run, size_t stage, size_t unit) {
    if (!run) return;
    if (unit != ROOT) f->k->zero(f->k, f->block_grads, f->layout->units[unit].whole_grad_elems);
    point_at(f, unit);
    model_backward(run, stage, f->places, f->grad_places);
}

static void backward(fsdp *f, model_run *run, uint64_t micro) {
    f->k->zero(f->k, f->root_grads, f->layout->units[ROOT].whole_grad_elems);
    for (size_t stage = model_stages(f->m); stage-- > 0;) {
        const size_t unit = model_stage_unit(f->m, stage);
        const double start = MPI_Wtime();
        hold(f, unit, stage > 0 ? model_stage_unit(f->m, stage - 1) : ROOT);
        const double held = MPI_Wtime();
        backward_stage(f, run, stage, unit);
        timeline_add(f->tl, TIMELINE_WAIT, (long)unit, start, held);
        timeline_add(f->tl, TIMELINE_BACKWARD, (long)unit, held, MPI_Wtime());
        if (unit != ROOT || stage == 0) reduce(f, unit, micro);
    }
}

void fsdp_evaluate(fsdp *f, model_run *run) { forward(f, run); }

void fsdp_micro_step(fsdp *f, uint64_t micro, model_run *run) {
    forward(f, run);
    backward(f, run, micro);
}
