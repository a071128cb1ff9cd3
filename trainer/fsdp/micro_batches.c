/* Arithmetic of micro-batches: every rank computes what every rank does. */
#include "fsdp/micro_batches.h"

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t fsdp_micro_batches_steps(const fsdp_micro_batches *l) {
    const uint64_t world = (uint64_t)l->world;
    return l->n / world + (l->n % world != 0);
}

/* Of the group that a rank is in. */
static uint64_t group_first(const fsdp_micro_batches *l, int rank) {
    const uint64_t before = (uint64_t)(rank / l->group * l->group);
    return least(l->n, before * fsdp_micro_batches_steps(l));
}

static uint64_t group_end(const fsdp_micro_batches *l, int rank) {
    return group_first(l, rank + l->group);
}

/* Of a rank's consecutive micro-batches. */
static uint64_t first_batch(const fsdp_micro_batches *l, int rank) {
    return least(l->n, (uint64_t)rank * fsdp_micro_batches_steps(l));
}

uint64_t fsdp_micro_batch_of(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    const uint64_t group = (uint64_t)l->group, place = (uint64_t)(rank % l->group);
    const uint64_t batch =
        l->local ? first_batch(l, rank) + micro : group_first(l, rank) + micro * group + place;
    const uint64_t end = l->local ? first_batch(l, rank + 1) : group_end(l, rank);
    return batch < end ? batch : l->n;
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

size_t fsdp_micro_batches_all_parts(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    fsdp_part parts[FSDP_MOST_PARTS];
    const int first = rank / l->group * l->group;
    size_t n = 0;
    for (int r = first; r < first + l->group; r++)
        n += fsdp_micro_batches_parts(l, r, micro, parts);
    return n;
}

size_t fsdp_micro_batches_group_parts(const fsdp_micro_batches *l, int rank,
                                      fsdp_part parts[FSDP_MOST_PARTS]) {
    return subtrees(group_first(l, rank), group_end(l, rank), parts);
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

/* Where ranks keep sums of their own, all that a group adds up comes after the last micro-step. */
size_t fsdp_micro_batches_group_kept(const fsdp_micro_batches *l, int rank) {
    const uint64_t first = group_first(l, rank), end = group_end(l, rank);
    const uint64_t micro_steps = fsdp_micro_batches_steps(l);
    size_t most = 1;
    for (uint64_t micro = 1; micro < micro_steps && !l->local; micro++) {
        const size_t n = subtrees(first, least(first + micro * (uint64_t)l->group, end), NULL);
        if (n > most) most = n;
    }
    return most;
}

size_t fsdp_micro_batches_most_group_kept(const fsdp_micro_batches *l) {
    size_t most = 1;
    for (int r = 0; r < l->world && group_first(l, r) < l->n; r += l->group) {
        const size_t n = fsdp_micro_batches_group_kept(l, r);
        if (n > most) most = n;
    }
    return most;
}
