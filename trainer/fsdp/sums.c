/* The binary counter. An addition's result replaces the older sum: fp32 addition commutes, so that
 * where it is stored changes no bit. Sums that were pushed since the last settle may lie in
 * borrowed memory; they are newer than all that lie in slots. A sum's first slot is the storage
 * where it ends, wherever that is as long; the others are beside it, of all units in one piece. */
#include "fsdp/sums.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

/* The newest sum is added to the one before it. */
static void merge_newest(fsdp_sum *p) {
    const size_t newest = p->depth - 1, older = p->depth - 2;
    p->k->add(p->k, p->sums[older].at, p->sums[newest].at, p->elems);
    p->sums[older].part.n += p->sums[newest].part.n;
    if (p->sums[newest].slot >= 0) p->used &= ~((uint64_t)1 << p->sums[newest].slot);
    p->depth--;
}

/* Whether the two newest sums are the halves of a subtree. */
static int are_halves(const fsdp_sum *p) {
    if (p->depth < 2) return 0;
    const fsdp_part newest = p->sums[p->depth - 1].part, older = p->sums[p->depth - 2].part;
    return newest.n == older.n && older.first % (2 * older.n) == 0;
}

void fsdp_sum_push(fsdp_sum *p, fsdp_part part, float *batch) {
    assert(p->depth < FSDP_SUM_DEPTH);
    p->sums[p->depth].part = part;
    p->sums[p->depth].at = batch;
    p->sums[p->depth].slot = -1;
    p->depth++;
    while (are_halves(p)) merge_newest(p);
}

static int unused_slot(const fsdp_sum *p) {
    int slot = 0;
    while (p->used >> slot & 1) slot++;
    assert((size_t)slot < p->n_slots);
    return slot;
}

void fsdp_sum_settle(fsdp_sum *p) {
    for (size_t i = 0; i < p->depth; i++) {
        if (p->sums[i].slot >= 0) continue;
        const int slot = unused_slot(p);
        float *to = slot ? p->slots[slot - 1] + p->offset : p->result;
        if (to != p->sums[i].at) p->k->copy(p->k, to, p->sums[i].at, p->elems);
        p->sums[i].at = to;
        p->sums[i].slot = slot;
        p->used |= (uint64_t)1 << slot;
    }
}

void fsdp_sum_clear(fsdp_sum *p) {
    p->used = 0;
    p->depth = 0;
}

float *fsdp_sum_join(fsdp_sum *p) {
    assert(p->depth > 0);
    while (p->depth >= 2) merge_newest(p);
    float *sum = p->sums[0].at;
    fsdp_sum_clear(p);
    return sum;
}

void fsdp_sum_fold(fsdp_sum *p) {
    const float *sum = fsdp_sum_join(p);
    if (sum != p->result) p->k->copy(p->k, p->result, sum, p->elems);
}

static int take_slots(kernels *k, float ***out, size_t n, uint64_t elems, dcp_error *err) {
    *out = calloc(n + 1, sizeof **out);
    if (!*out) return core_fail_memory(err, n * sizeof **out);
    for (size_t s = 0; s < n; s++) {
        (*out)[s] = k->alloc(k, elems * sizeof(float));
        if (!(*out)[s]) return core_fail_memory(err, elems * sizeof(float));
    }
    return DCP_OK;
}

static int take_counters(fsdp_sums *s, const fsdp_layout *layout, const fsdp_sizes *sizes,
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
        const fsdp_range piece = fsdp_grad_range(layout, u, layout->rank);
        const int before = piece.start - unit->grad_starts[layout->shard];
        s->own[u] = (fsdp_sum){.k = s->k,
                               .result = grads + unit->grad_at + before,
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
        float *result = in_storage ? grads + layout->units[u].grad_at : NULL;
        if (!in_storage && s->n_local) result = slots[0] + offset;
        s->local[u] = (fsdp_sum){.k = s->k,
                                 .result = result,
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
    const int status = take_counters(out, plan->layout, &sizes, err);
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
