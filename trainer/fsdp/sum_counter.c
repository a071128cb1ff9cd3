#include "fsdp/sum_counter.h"

#include <assert.h>

/* The newest sum is added to the one before it. */
static void merge_newest(fsdp_sum_counter *p) {
    const size_t newest = p->depth - 1, older = p->depth - 2;
    p->k->add(p->k, p->sums[older].at, p->sums[newest].at, p->elems);
    p->sums[older].part.n += p->sums[newest].part.n;
    if (p->sums[newest].slot >= 0) p->used &= ~((uint64_t)1 << p->sums[newest].slot);
    p->depth--;
}

/* Whether the two newest sums are the halves of a subtree. */
static int are_halves(const fsdp_sum_counter *p) {
    if (p->depth < 2) return 0;
    const fsdp_part newest = p->sums[p->depth - 1].part, older = p->sums[p->depth - 2].part;
    return newest.n == older.n && older.first % (2 * older.n) == 0;
}

void fsdp_sum_push(fsdp_sum_counter *p, fsdp_part part, float *batch) {
    assert(p->depth < FSDP_SUM_DEPTH);
    p->sums[p->depth].part = part;
    p->sums[p->depth].at = batch;
    p->sums[p->depth].slot = -1;
    p->depth++;
    while (are_halves(p)) merge_newest(p);
}

static int unused_slot(const fsdp_sum_counter *p) {
    int slot = 0;
    while (p->used >> slot & 1) slot++;
    assert((size_t)slot < p->n_slots);
    return slot;
}

void fsdp_sum_settle(fsdp_sum_counter *p) {
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
