#include "fsdp/sum_order.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "programs/fail.h"

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The largest number of additions that a micro-batch's gradient goes through. The square of the
 * error is proportional to it. */
static uint64_t additions(fsdp_sum_order o, uint64_t n) {
    return o.small + o.large / o.small + n / o.large;
}

/* Returns the order with the fewest additions in its three rows. Requires that n is a power of two
 * times `odd`. */
static fsdp_sum_order shortest_rows(uint64_t odd, uint64_t n) {
    fsdp_sum_order best = {odd, n};
    for (uint64_t large = n; large >= odd; large = large % 2 ? 0 : large / 2)
        for (uint64_t small = large; small >= odd; small = small % 2 ? 0 : small / 2) {
            const fsdp_sum_order o = {small, large};
            if (additions(o, n) < additions(best, n)) best = o;
        }
    return best;
}

fsdp_sum_order fsdp_sum_order_of(uint64_t n) {
    uint64_t odd = n, power = 1;
    if (n == 0) return (fsdp_sum_order){1, 1};
    while (odd % 2 == 0) odd /= 2;
    if (odd <= FSDP_ODD_BLOCK) return shortest_rows(odd, n);
    while (power < n) power *= 2;
    return shortest_rows(1, power);
}

fsdp_sum_order fsdp_sum_order_running(void) { return (fsdp_sum_order){UINT64_MAX, UINT64_MAX}; }

/* The size of the block that a sum of n micro-batches belongs to. */
static uint64_t block_over(const fsdp_sum_order *o, uint64_t n) {
    if (n < o->small) return o->small;
    return n < o->large ? o->large : UINT64_MAX;
}

bool fsdp_sum_order_joins(const fsdp_sum_order *o, fsdp_part older, fsdp_part newer) {
    const uint64_t block = block_over(o, newer.n);
    return older.first % block == 0 && older.first / block == newer.first / block;
}

fsdp_part fsdp_sum_order_part(const fsdp_sum_order *o, uint64_t first, uint64_t end) {
    const struct {
        uint64_t block, of;
    } rows[] = {{UINT64_MAX, o->large}, {o->large, o->small}, {o->small, 1}};
    for (int i = 0; i < 3; i++) {
        const uint64_t n = least(end - first, rows[i].block);
        if (first % rows[i].block == 0 && n >= rows[i].of)
            return (fsdp_part){first, n - n % rows[i].of};
    }
    return (fsdp_part){first, 1};
}

uint64_t fsdp_sum_order_parts(const fsdp_sum_order *o, uint64_t first, uint64_t end) {
    uint64_t n = 0;
    for (; first < end; n++) first += fsdp_sum_order_part(o, first, end).n;
    return n;
}

int fsdp_sum_allocate_slots(kernels *k, float ***out, uint64_t n, uint64_t elems, dcp_error *err) {
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

/* Adds the newest sum to the one before it. */
static void merge_newest(fsdp_sum_counter *p) {
    assert(p->depth >= 2);
    const size_t newest = p->depth - 1, older = p->depth - 2;
    p->k->add(p->k, p->sums[older].at, p->sums[newest].at, p->elems);
    p->sums[older].part.n += p->sums[newest].part.n;
    if (p->sums[newest].slot >= 0) p->used &= ~((uint64_t)1 << p->sums[newest].slot);
    p->depth--;
}

/* Returns true if the newest sum has to be added to the one before it. */
static bool newest_joins(const fsdp_sum_counter *p) {
    if (p->depth < 2) return false;
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

/* Returns an unused slot. Prefers `result`, because a sum that ends there need not be moved. */
static int unused_slot(const fsdp_sum_counter *p) {
    const int result = (int)p->n_slots;
    int slot = 0;
    if (!p->result_is_used && !(p->used >> result & 1)) return result;
    while (p->used >> slot & 1) slot++;
    assert(slot < result);
    return slot;
}

void fsdp_sum_move_to_slots(fsdp_sum_counter *p) {
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

/* Arithmetic of micro-batches: each rank computes the schedule of all ranks. */

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t common_divisor(uint64_t a, uint64_t b) { return b ? common_divisor(b, a % b) : a; }

/* Returns true if a step is a whole number of rounds in which all ranks together compute `each`
 * micro-batches. */
static bool comes_out_even(const fsdp_micro_batches *l, uint64_t each) {
    return l->n > 0 && l->n % each == 0;
}

/* The longest block of the order such that all ranks have equally many blocks. */
static uint64_t longest_block(const fsdp_micro_batches *l) {
    const uint64_t world = (uint64_t)l->world;
    if (comes_out_even(l, world * l->order.large)) return l->order.large;
    return comes_out_even(l, world * l->order.small) ? l->order.small : 1;
}

/* Makes each group's runs from whole blocks of `of` micro-batches, such that the group's ranks
 * compute equally many blocks of `block` micro-batches, and all groups have equally many runs.
 * Returns true if such runs exist. */
static bool take_runs(fsdp_micro_batches *l, int group, uint64_t of, uint64_t block) {
    const uint64_t together = (uint64_t)group * block;
    const uint64_t blocks = together / common_divisor(of, together), run = blocks * of;
    if (blocks > FSDP_MAX_PARTS || !comes_out_even(l, (uint64_t)(l->world / group) * run))
        return false;
    l->group = group;
    l->run = run;
    l->block = block;
    return true;
}

static bool form_groups(fsdp_micro_batches *l, fsdp_sum_strategy s) {
    const uint64_t sizes[] = {l->order.large, l->order.small, 1};
    for (int of = 0; of < 2; of++)
        for (int block = s.local ? of : 2; block < 3; block++)
            if (take_runs(l, s.group, sizes[of], sizes[block])) return true;
    return false;
}

fsdp_micro_batches fsdp_micro_batches_of(uint64_t n, int world, fsdp_sum_strategy s) {
    fsdp_micro_batches l = {.n = n, .world = world, .group = world, .block = 1};
    assert(world > 0 && s.group > 0 && (s.group >= world || world % s.group == 0));
    l.order = s.ring ? fsdp_sum_order_running() : fsdp_sum_order_of(n);
    if (s.group < world && !s.ring && form_groups(&l, s)) return l;
    if (s.local && world > 1)
        l.block = s.ring ? most(fsdp_micro_batches_steps(&l), 1) : longest_block(&l);
    l.run = (uint64_t)world * l.block;
    return l;
}

uint64_t fsdp_micro_batches_steps(const fsdp_micro_batches *l) {
    const uint64_t world = (uint64_t)l->world;
    return l->n / world + (l->n % world != 0);
}

static uint64_t steps_of_run(const fsdp_micro_batches *l) {
    assert(l->run > 0 && l->run % (uint64_t)l->group == 0);
    return l->run / (uint64_t)l->group;
}

fsdp_part fsdp_micro_batches_run(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    const uint64_t groups = (uint64_t)(l->world / l->group), group = (uint64_t)(rank / l->group);
    return (fsdp_part){(micro / steps_of_run(l) * groups + group) * l->run, l->run};
}

bool fsdp_micro_batches_end_run(const fsdp_micro_batches *l, uint64_t micro) {
    return (micro + 1) % steps_of_run(l) == 0;
}

uint64_t fsdp_micro_batch_of(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    const uint64_t group = (uint64_t)l->group, place = (uint64_t)(rank % l->group);
    const uint64_t in_run = micro % steps_of_run(l), turn = in_run / l->block;
    const uint64_t batch = fsdp_micro_batches_run(l, rank, micro).first +
                           (turn * group + place) * l->block + in_run % l->block;
    return batch < l->n ? batch : l->n;
}

bool fsdp_micro_batches_are_sent(const fsdp_micro_batches *l, uint64_t micro) {
    return (micro + 1) % l->block == 0;
}

fsdp_part fsdp_micro_batches_part(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    if (!fsdp_micro_batches_are_sent(l, micro)) return (fsdp_part){l->n, 0};
    const uint64_t first = fsdp_micro_batch_of(l, rank, micro + 1 - l->block);
    return (fsdp_part){first, first < l->n ? l->block : 0};
}

uint64_t fsdp_micro_batches_senders(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    const int first = rank / l->group * l->group;
    uint64_t n = 0;
    for (int r = first; r < first + l->group; r++) n += fsdp_micro_batches_part(l, r, micro).n > 0;
    return n;
}

/* The largest number of sums that are stored while n micro-batches, starting at `first`, arrive
 * `each` at a time, before the last ones arrive. */
static uint64_t kept_between(const fsdp_micro_batches *l, uint64_t first, uint64_t n,
                             uint64_t each) {
    uint64_t kept = 0;
    for (uint64_t there = each; there < n; there += each)
        kept = most(kept, fsdp_sum_order_parts(&l->order, first, first + there));
    return kept;
}

/* Considers only the first block, because all blocks are added up in the same way. */
uint64_t fsdp_micro_batches_stored_local(const fsdp_micro_batches *l) {
    return kept_between(l, 0, l->block, 1);
}

uint64_t fsdp_micro_batches_stored(const fsdp_micro_batches *l) {
    const uint64_t together = (uint64_t)l->group * l->block;
    uint64_t kept = 0;
    if (l->group == l->world) return kept_between(l, 0, l->n, together);
    for (uint64_t first = 0; first < l->n; first += l->run)
        kept = most(kept, kept_between(l, first, l->run, together));
    return kept;
}

uint64_t fsdp_micro_batches_stored_across(const fsdp_micro_batches *l) {
    if (l->group == l->world) return 0;
    return kept_between(l, 0, l->n, (uint64_t)(l->world / l->group) * l->run);
}
