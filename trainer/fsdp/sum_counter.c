#include "fsdp/sum_counter.h"

#include <assert.h>
#include <stdlib.h>

#include "programs/fail.h"

int fsdp_sum_take_slots(kernels *k, float ***out, uint64_t n, uint64_t elems, dcp_error *err) {
    *out = calloc(n + 1, sizeof **out);
    if (!*out) return core_fail_memory(err, n * sizeof **out);
    for (uint64_t s = 0; s < n; s++) {
        (*out)[s] = k->alloc(k, elems * sizeof(float));
        if (!(*out)[s]) return core_fail_memory(err, elems * sizeof(float));
    }
    return DCP_OK;
}

void fsdp_sum_free_slots(kernels *k, float **slots, uint64_t n) {
    for (uint64_t s = 0; s < n && slots; s++) k->free(k, slots[s]);
    free(slots);
}

/* The newest sum is added to the one before it. */
static void merge_newest(fsdp_sum_counter *p) {
    const size_t newest = p->depth - 1, older = p->depth - 2;
    p->k->add(p->k, p->sums[older].at, p->sums[newest].at, p->elems);
    p->sums[older].part.n += p->sums[newest].part.n;
    if (p->sums[newest].slot >= 0) p->used &= ~((uint64_t)1 << p->sums[newest].slot);
    p->depth--;
}

/* Whether the newest sum is added to the one before it. */
static int newest_joins(const fsdp_sum_counter *p) {
    if (p->depth < 2) return 0;
    return fsdp_sum_order_joins(&p->order, p->sums[p->depth - 2].part, p->sums[p->depth - 1].part);
}

void fsdp_sum_push(fsdp_sum_counter *p, fsdp_part part, float *batch) {
    assert(p->depth < FSDP_SUM_DEPTH);
    p->sums[p->depth].part = part;
    p->sums[p->depth].at = batch;
    p->sums[p->depth].slot = -1;
    p->depth++;
    while (newest_joins(p)) merge_newest(p);
}

/* The result first: what is left there at the end need not be moved. */
static int unused_slot(const fsdp_sum_counter *p) {
    const int result = (int)p->n_slots;
    int slot = 0;
    if (!p->result_is_used && !(p->used >> result & 1)) return result;
    while (p->used >> slot & 1) slot++;
    assert(slot < result);
    return slot;
}

void fsdp_sum_settle(fsdp_sum_counter *p) {
    for (size_t i = 0; i < p->depth; i++) {
        if (p->sums[i].slot >= 0) continue;
        const int slot = unused_slot(p);
        float *to = (uint64_t)slot < p->n_slots ? p->slots[slot] + p->offset : p->result;
        if (to != p->sums[i].at) p->k->copy(p->k, to, p->sums[i].at, p->elems);
        p->sums[i].at = to;
        p->sums[i].slot = slot;
        p->used |= (uint64_t)1 << slot;
    }
}

void fsdp_sum_clear(fsdp_sum_counter *p) {
    p->used = 0;
    p->depth = 0;
}

float *fsdp_sum_join(fsdp_sum_counter *p) {
    assert(p->depth > 0);
    while (p->depth >= 2) merge_newest(p);
    float *sum = p->sums[0].at;
    fsdp_sum_clear(p);
    return sum;
}

void fsdp_sum_fold(fsdp_sum_counter *p) {
    const float *sum = fsdp_sum_join(p);
    if (sum != p->result) p->k->copy(p->k, p->result, sum, p->elems);
}
