/* The binary counter. An addition's result replaces the older sum: fp32 addition commutes, so that
 * where it is stored changes no bit. Sums that were pushed since the last settle may lie in
 * borrowed memory; they are newer than all that lie in slots. */
#include "fsdp/partial.h"

#include <assert.h>
#include <string.h>

static size_t bits(uint64_t n) { return (size_t)__builtin_popcountll(n); }

size_t partial_slots(uint64_t leaves, uint64_t together) {
    size_t most = 1;
    for (uint64_t done = together; done < leaves; done += together)
        if (bits(done) > most) most = bits(done);
    return most;
}

/* The newest sum is added to the one before it. */
static void merge(partial_sums *p) {
    const size_t newest = p->depth - 1, older = p->depth - 2;
    p->k->add(p->k, p->sums[older].at, p->sums[newest].at, p->elems);
    p->sums[older].part.leaves += p->sums[newest].part.leaves;
    if (p->sums[newest].slot >= 0) p->used &= ~((uint64_t)1 << p->sums[newest].slot);
    p->depth--;
}

/* Whether the two newest sums are the halves of a subtree. */
static int are_halves(const partial_sums *p) {
    if (p->depth < 2) return 0;
    const fsdp_part newest = p->sums[p->depth - 1].part, older = p->sums[p->depth - 2].part;
    return newest.leaves == older.leaves && older.first % (2 * older.leaves) == 0;
}

void partial_push(partial_sums *p, fsdp_part part, float *leaf) {
    assert(p->depth < PARTIAL_DEPTH);
    p->sums[p->depth].part = part;
    p->sums[p->depth].at = leaf;
    p->sums[p->depth].slot = -1;
    p->depth++;
    while (are_halves(p)) merge(p);
}

static int free_slot(const partial_sums *p) {
    int slot = 0;
    while (p->used >> slot & 1) slot++;
    assert((size_t)slot < p->n_slots);
    return slot;
}

void partial_settle(partial_sums *p) {
    for (size_t i = 0; i < p->depth; i++) {
        if (p->sums[i].slot >= 0) continue;
        const int slot = free_slot(p);
        float *to = slot ? p->slots[slot - 1] + p->offset : p->home;
        if (to != p->sums[i].at) p->k->copy(p->k, to, p->sums[i].at, p->elems);
        p->sums[i].at = to;
        p->sums[i].slot = slot;
        p->used |= (uint64_t)1 << slot;
    }
}

void partial_clear(partial_sums *p) {
    p->used = 0;
    p->depth = 0;
}

float *partial_join(partial_sums *p) {
    assert(p->depth > 0);
    while (p->depth >= 2) merge(p);
    float *sum = p->sums[0].at;
    partial_clear(p);
    return sum;
}

void partial_fold(partial_sums *p) {
    const float *sum = partial_join(p);
    if (sum != p->home) p->k->copy(p->k, p->home, sum, p->elems);
}
