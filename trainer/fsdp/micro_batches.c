/* Arithmetic of micro-batches: every rank computes what every rank does. */
#include "fsdp/micro_batches.h"

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t fsdp_micro_batches_steps(const fsdp_micro_batches *l) {
    const uint64_t world = (uint64_t)l->world;
    return l->n / world + (l->n % world != 0);
}

/* Of a rank's consecutive micro-batches. */
static uint64_t first_batch(const fsdp_micro_batches *l, int rank) {
    return least(l->n, (uint64_t)rank * fsdp_micro_batches_steps(l));
}

uint64_t fsdp_micro_batch_of(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    if (!l->local) return least(l->n, micro * (uint64_t)l->world + (uint64_t)rank);
    const uint64_t batch = first_batch(l, rank) + micro;
    return batch < first_batch(l, rank + 1) ? batch : l->n;
}

/* The largest subtree that begins at a micro-batch and ends before `end`. */
static uint64_t subtree(uint64_t first, uint64_t end) {
    uint64_t batches = 1;
    while (first % (2 * batches) == 0 && first + 2 * batches <= end) batches *= 2;
    return batches;
}

/* The subtrees that micro-batches first ... end - 1 are made of. */
static size_t subtrees(uint64_t first, uint64_t end, fsdp_part *parts) {
    size_t n = 0;
    while (first < end) {
        const uint64_t batches = subtree(first, end);
        if (parts) parts[n] = (fsdp_part){first, batches};
        n++;
        first += batches;
    }
    return n;
}

size_t fsdp_micro_batches_parts(const fsdp_micro_batches *l, int rank, uint64_t micro,
                                fsdp_part parts[FSDP_MOST_PARTS]) {
    if (l->local) {
        if (micro + 1 < fsdp_micro_batches_steps(l)) return 0;
        return subtrees(first_batch(l, rank), first_batch(l, rank + 1), parts);
    }
    const uint64_t batch = fsdp_micro_batch_of(l, rank, micro);
    if (batch == l->n) return 0;
    parts[0] = (fsdp_part){batch, 1};
    return 1;
}

size_t fsdp_micro_batches_all_parts(const fsdp_micro_batches *l, uint64_t micro) {
    fsdp_part parts[FSDP_MOST_PARTS];
    size_t n = 0;
    for (int r = 0; r < l->world; r++) n += fsdp_micro_batches_parts(l, r, micro, parts);
    return n;
}

size_t fsdp_micro_batches_kept(const fsdp_micro_batches *l, int rank) {
    if (!l->local) return 0;
    const uint64_t first = first_batch(l, rank), end = first_batch(l, rank + 1);
    const uint64_t micro_steps = fsdp_micro_batches_steps(l);
    size_t most = 0;
    for (uint64_t done = 1; done < micro_steps && first + done <= end; done++) {
        const size_t n = subtrees(first, first + done, NULL);
        if (n > most) most = n;
    }
    return most;
}

size_t fsdp_micro_batches_most_kept(const fsdp_micro_batches *l) {
    size_t most = 0;
    for (int r = 0; r < l->world && first_batch(l, r) < l->n; r++) {
        const size_t n = fsdp_micro_batches_kept(l, r);
        if (n > most) most = n;
    }
    return most;
}

static size_t count_bits(uint64_t x) { return (size_t)__builtin_popcountll(x); }

size_t fsdp_micro_batches_slots(uint64_t n, uint64_t together) {
    size_t most = 1;
    for (uint64_t done = together; done < n; done += together)
        if (count_bits(done) > most) most = count_bits(done);
    return most;
}
