/* A sum's first slot is the storage where it ends, wherever that is as long; the others are beside
 * it, of all units in one piece. */
#include "fsdp/sums.h"

#include <stdlib.h>

#include "programs/fail.h"

static int take_slots(kernels *k, float ***out, size_t n, uint64_t elems, dcp_error *err) {
    *out = calloc(n + 1, sizeof **out);
    if (!*out) return core_fail_memory(err, n * sizeof **out);
    for (size_t s = 0; s < n; s++) {
        (*out)[s] = k->alloc(k, elems * sizeof(float));
        if (!(*out)[s]) return core_fail_memory(err, elems * sizeof(float));
    }
    return DCP_OK;
}

static int allocate(fsdp_sums *s, const fsdp_layout *layout, const fsdp_sizes *sizes,
                    dcp_error *err) {
    s->own = calloc(layout->n, sizeof *s->own);
    s->local = calloc(layout->n, sizeof *s->local);
    if (!s->own || !s->local) return core_fail_memory(err, layout->n * sizeof *s->own);
    const int status = take_slots(s->k, &s->own_slots, s->n_own, sizes->own_sum, err);
    if (status != DCP_OK) return status;
    return take_slots(s->k, &s->local_slots, s->n_local, sizes->local_sum, err);
}

static void place_own(fsdp_sums *s, const fsdp_layout *layout, float *grads) {
    uint64_t offset = 0;
    for (size_t u = 0; u < layout->n; u++) {
        const fsdp_unit *unit = &layout->units[u];
        const fsdp_piece piece = fsdp_grad_piece(layout, u, layout->rank);
        const int before = piece.start - unit->grad_starts[layout->shard];
        s->own[u] = (partial_sums){.k = s->k,
                                   .home = grads + unit->grad_at + before,
                                   .slots = s->own_slots,
                                   .n_slots = 1 + s->n_own,
                                   .offset = offset,
                                   .elems = (uint64_t)piece.count};
        offset += (uint64_t)piece.count;
    }
}

static void place_local(fsdp_sums *s, const fsdp_layout *layout, float *grads) {
    const int in_storage = layout->shards == 1;
    float *const *slots = s->local_slots;
    uint64_t offset = 0;
    for (size_t u = 0; u < layout->n; u++) {
        const uint64_t elems = layout->units[u].whole_grad_elems;
        float *home = in_storage ? grads + layout->units[u].grad_at : NULL;
        if (!in_storage && s->n_local) home = slots[0] + offset;
        s->local[u] = (partial_sums){.k = s->k,
                                     .home = home,
                                     .slots = in_storage ? slots : slots + 1,
                                     .n_slots = s->n_local + (size_t)in_storage,
                                     .offset = offset,
                                     .elems = elems};
        offset += elems;
    }
}

int fsdp_sums_create(const fsdp_plan *plan, kernels *k, float *grads, fsdp_sums *out,
                     dcp_error *err) {
    const fsdp_sizes sizes = fsdp_plan_sizes(plan);
    *out = (fsdp_sums){.n_own = sizes.n_own_sums, .n_local = sizes.n_local_sums, .k = k};
    const int status = allocate(out, plan->layout, &sizes, err);
    if (status != DCP_OK) return status;
    place_own(out, plan->layout, grads);
    place_local(out, plan->layout, grads);
    return DCP_OK;
}

static void free_slots(kernels *k, float **slots, size_t n) {
    for (size_t s = 0; s < n && slots; s++) k->free(k, slots[s]);
    free(slots);
}

void fsdp_sums_destroy(fsdp_sums *s) {
    free_slots(s->k, s->own_slots, s->n_own);
    free_slots(s->k, s->local_slots, s->n_local);
    free(s->own);
    free(s->local);
}
