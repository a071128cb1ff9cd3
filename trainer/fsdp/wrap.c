/* A model's own units are its root and its blocks; here they are joined. */
#include "fsdp/wrap.h"

#include <stdlib.h>

#include "fsdp/globs.h"
#include "programs/fail.h"

enum { ROOT = 0 };

typedef struct wrapping {
    const model *m;
    size_t n;                   /* units */
    size_t *unit_of, *first_of; /* of the model's units, as in fsdp_layout */
    size_t *counts;             /* [n] parameters of a unit */
} wrapping;

static uint64_t elems_of(const model *m, size_t unit) {
    uint64_t total = 0;
    for (size_t i = 0; i < model_unit_params(m, unit); i++) {
        const model_param *param = model_unit_param(m, unit, i);
        uint64_t elems = 1;
        for (uint32_t d = 0; d < param->ndim; d++) elems *= param->shape[d];
        total += elems;
    }
    return total;
}

/* Blocks first ... end - 1 become part of a unit. */
static void assign(wrapping *w, size_t first, size_t end, size_t unit) {
    for (size_t block = first; block < end; block++) w->unit_of[block] = unit;
}

/* Joins blocks until they are large enough; what is left stays with the root. */
static void join_blocks(wrapping *w, uint64_t min_params) {
    uint64_t elems = 0;
    size_t first = 1;
    w->n = 1;
    for (size_t block = 1; block < model_units(w->m); block++) {
        elems += elems_of(w->m, block);
        if (elems < min_params) continue;
        assign(w, first, block + 1, w->n++);
        first = block + 1;
        elems = 0;
    }
    assign(w, first, model_units(w->m), ROOT);
}

static void count_params(wrapping *w) {
    for (size_t u = 0; u < model_units(w->m); u++) {
        size_t *count = &w->counts[w->unit_of[u]];
        w->first_of[u] = *count;
        *count += model_unit_params(w->m, u);
    }
}

/* The parameters of all units in order; NULL where memory is short. Freed with free(). */
static model_param *list_params(const wrapping *w, const json_t *frozen) {
    size_t total = 0, at = 0;
    for (size_t unit = 0; unit < w->n; unit++) total += w->counts[unit];
    model_param *params = malloc(total * sizeof *params);
    for (size_t unit = 0; unit < w->n && params; unit++)
        for (size_t u = 0; u < model_units(w->m); u++) {
            if (w->unit_of[u] != unit) continue;
            for (size_t i = 0; i < model_unit_params(w->m, u); i++, at++) {
                params[at] = *model_unit_param(w->m, u, i);
                params[at].frozen = globs_match(frozen, params[at].name);
            }
        }
    return params;
}

static int check_frozen(const json_t *frozen, const fsdp_layout *layout, dcp_error *err) {
    const int status = globs_check(layout, "frozen", frozen, err);
    if (status != DCP_OK || layout->trained_params > 0) return status;
    return core_fail(err, DCP_ERR_ARG,
                     "frozen: matches every parameter of the model; nothing is left to train");
}

static int lay_out(const wrapping *w, const json_t *frozen, const fsdp_strategy *strategy, int rank,
                   int world, fsdp_layout **out, dcp_error *err) {
    model_param *params = list_params(w, frozen);
    if (!params) return core_fail_memory(err, w->n * sizeof *params);
    int status = fsdp_layout_create(params, w->counts, w->n, rank, world, strategy->replicas,
                                    strategy->in_place, out, err);
    free(params);
    if (status != DCP_OK) return status;
    status = check_frozen(frozen, *out, err);
    if (status == DCP_OK) return DCP_OK;
    fsdp_layout_destroy(*out);
    *out = NULL;
    return status;
}

int fsdp_layout_of_model(const model *m, const json_t *frozen, const fsdp_strategy *strategy,
                         int rank, int world, fsdp_layout **out, dcp_error *err) {
    const size_t n = model_units(m);
    wrapping w = {.m = m,
                  .unit_of = calloc(n, sizeof *w.unit_of),
                  .first_of = calloc(n, sizeof *w.first_of),
                  .counts = calloc(n, sizeof *w.counts)};
    int status = DCP_OK;
    if (!w.unit_of || !w.first_of || !w.counts) {
        status = core_fail_memory(err, n * sizeof *w.counts);
    } else {
        join_blocks(&w, strategy->min_params);
        count_params(&w);
        status = lay_out(&w, frozen, strategy, rank, world, out, err);
    }
    free(w.counts);
    if (status == DCP_OK) {
        (*out)->unit_of = w.unit_of;
        (*out)->first_of = w.first_of;
    } else {
        free(w.unit_of);
        free(w.first_of);
    }
    return status;
}
