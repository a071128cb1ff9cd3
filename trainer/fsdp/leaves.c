#include "fsdp/leaves.h"

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t fsdp_leaves_micro_steps(const fsdp_leaves *l) {
    const uint64_t world = (uint64_t)l->world;
    return l->n / world + (l->n % world != 0);
}

/* Of a rank's consecutive leaves. */
static uint64_t first_leaf(const fsdp_leaves *l, int rank) {
    return least(l->n, (uint64_t)rank * fsdp_leaves_micro_steps(l));
}

uint64_t fsdp_leaf(const fsdp_leaves *l, int rank, uint64_t micro) {
    if (!l->local) return least(l->n, micro * (uint64_t)l->world + (uint64_t)rank);
    const uint64_t leaf = first_leaf(l, rank) + micro;
    return leaf < first_leaf(l, rank + 1) ? leaf : l->n;
}

/* The largest subtree that begins at a leaf and ends before `end`. */
static uint64_t subtree(uint64_t first, uint64_t end) {
    uint64_t leaves = 1;
    while (first % (2 * leaves) == 0 && first + 2 * leaves <= end) leaves *= 2;
    return leaves;
}

/* The subtrees that leaves first ... end - 1 are made of. */
static size_t subtrees(uint64_t first, uint64_t end, fsdp_part *parts) {
    size_t n = 0;
    while (first < end) {
        const uint64_t leaves = subtree(first, end);
        if (parts) parts[n] = (fsdp_part){first, leaves};
        n++;
        first += leaves;
    }
    return n;
}

size_t fsdp_leaves_parts(const fsdp_leaves *l, int rank, uint64_t micro,
                         fsdp_part parts[FSDP_MOST_PARTS]) {
    if (l->local) {
        if (micro + 1 < fsdp_leaves_micro_steps(l)) return 0;
        return subtrees(first_leaf(l, rank), first_leaf(l, rank + 1), parts);
    }
    const uint64_t leaf = fsdp_leaf(l, rank, micro);
    if (leaf == l->n) return 0;
    parts[0] = (fsdp_part){leaf, 1};
    return 1;
}

size_t fsdp_leaves_all_parts(const fsdp_leaves *l, uint64_t micro) {
    fsdp_part parts[FSDP_MOST_PARTS];
    size_t n = 0;
    for (int r = 0; r < l->world; r++) n += fsdp_leaves_parts(l, r, micro, parts);
    return n;
}

size_t fsdp_leaves_kept(const fsdp_leaves *l, int rank) {
    if (!l->local) return 0;
    const uint64_t first = first_leaf(l, rank), end = first_leaf(l, rank + 1);
    const uint64_t micro_steps = fsdp_leaves_micro_steps(l);
    size_t most = 0;
    for (uint64_t done = 1; done < micro_steps && first + done <= end; done++) {
        const size_t n = subtrees(first, first + done, NULL);
        if (n > most) most = n;
    }
    return most;
}

size_t fsdp_leaves_most_kept(const fsdp_leaves *l) {
    size_t most = 0;
    for (int r = 0; r < l->world && first_leaf(l, r) < l->n; r++) {
        const size_t n = fsdp_leaves_kept(l, r);
        if (n > most) most = n;
    }
    return most;
}
