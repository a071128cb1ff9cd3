#include "buffers.h"

#include <stdlib.h>

#include "../fail.h"

enum { ROOT = 0 };

static int take(kernels *k, float **out, uint64_t elems, dcp_error *err) {
    if (elems == 0) return DCP_OK;
    *out = k->alloc(k, elems * sizeof(float));
    if (!*out) return trainer_fail_memory(err, elems * sizeof(float));
    k->zero(k, *out, elems);
    return DCP_OK;
}

static int take_staging(fsdp_buffers *b, const fsdp_sizes *s, dcp_error *err) {
    b->flights = calloc(s->n_staging + 1, sizeof *b->flights);
    if (!b->flights) return trainer_fail_memory(err, s->n_staging);
    b->n_flights = s->n_staging;
    int status = DCP_OK;
    for (size_t i = 0; i < s->n_staging && !status; i++)
        status = take(b->k, &b->flights[i].staging, i ? s->staging : s->first_staging, err);
    return status;
}

static int take_all(fsdp_buffers *b, const fsdp_sizes *s, dcp_error *err) {
    int status = take(b->k, &b->root_grads, s->root_grads, err);
    if (!status) status = take(b->k, &b->block_grads, s->block_grads, err);
    if (!status) status = take(b->k, &b->root, s->root, err);
    if (!status) status = take(b->k, &b->block, s->block, err);
    if (!status) status = take(b->k, &b->kept, s->kept_blocks, err);
    if (!status) status = take(b->k, &b->outgoing, s->outgoing, err);
    return status ? status : take_staging(b, s, err);
}

static void place_units(fsdp_buffers *b, const fsdp_layout *layout, float *params) {
    float *kept = b->kept;
    for (size_t u = 0; u < layout->n; u++) {
        if (layout->shards == 1) {
            b->whole[u] = params + layout->units[u].shard_at;
        } else if (u == ROOT) {
            b->whole[u] = b->root;
        } else if (!kept) {
            b->whole[u] = b->block;
        } else {
            b->whole[u] = kept;
            kept += layout->units[u].whole_elems;
        }
    }
}

int fsdp_buffers_create(const fsdp_plan *plan, kernels *k, float *params, fsdp_buffers *out,
                        dcp_error *err) {
    const fsdp_sizes sizes = fsdp_plan_sizes(plan);
    *out = (fsdp_buffers){.k = k};
    out->whole = calloc(plan->layout->n, sizeof *out->whole);
    if (!out->whole) return trainer_fail_memory(err, plan->layout->n * sizeof *out->whole);
    const int status = take_all(out, &sizes, err);
    if (status == DCP_OK) place_units(out, plan->layout, params);
    return status;
}

void fsdp_buffers_destroy(fsdp_buffers *b) {
    float *const taken[] = {b->root, b->block, b->kept, b->outgoing, b->root_grads, b->block_grads};
    if (!b->k) return;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) b->k->free(b->k, taken[i]);
    for (size_t i = 0; i < b->n_flights; i++) b->k->free(b->k, b->flights[i].staging);
    free(b->flights);
    free(b->whole);
}
