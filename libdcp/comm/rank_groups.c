#include "comm/rank_groups.h"

#include <stdlib.h>

static int compare_keys(const void *a, const void *b, void *keys) {
    const int x = *(const int *)a, y = *(const int *)b;
    const uint64_t *key = keys;
    if (key[x] != key[y]) return key[x] < key[y] ? -1 : 1;
    return x - y;
}

/* One block of memory. */
comm_groups *comm_groups_room(int size) {
    const size_t n = (size_t)size;
    comm_groups *g = calloc(1, sizeof *g + (3 * n + 1) * sizeof(int));
    if (!g) return NULL;
    g->of = (int *)(g + 1);
    g->ranks = g->of + n;
    g->first = g->ranks + n;
    atomic_store(&g->users, 1);
    return g;
}

/* of[rank] is the lowest rank of its group, and becomes the group's number. */
static void number_groups(comm_groups *g, int rank, int size) {
    for (int r = 0; r < size; r++) g->of[r] = g->of[r] == r ? g->n++ : g->of[g->of[r]];
    for (int r = 0; r < size; r++) g->first[g->of[r] + 1]++;
    for (int i = 0; i < g->n; i++) g->first[i + 1] += g->first[i];
    for (int r = 0; r < size; r++) g->ranks[g->first[g->of[r]]++] = r;
    for (int i = g->n; i > 0; i--) g->first[i] = g->first[i - 1];
    g->first[0] = 0;
    g->own = g->of[rank];
}

int comm_groups_largest(const comm_groups *g) {
    int most = 0;
    for (int i = 0; i < g->n; i++)
        if (comm_groups_size(g, i) > most) most = comm_groups_size(g, i);
    return most;
}

void comm_groups_fill(comm_groups *g, int rank, int size, const uint64_t *keys) {
    int *sorted = g->ranks; /* for now */
    for (int r = 0; r < size; r++) sorted[r] = r;
    qsort_r(sorted, (size_t)size, sizeof *sorted, compare_keys, (void *)keys);
    for (int i = 0, lowest = 0; i < size; i++) {
        if (i == 0 || keys[sorted[i]] != keys[sorted[i - 1]]) lowest = sorted[i];
        g->of[sorted[i]] = lowest;
    }
    number_groups(g, rank, size);
}

comm_groups *comm_groups_make(int rank, int size, const uint64_t *keys) {
    comm_groups *g = comm_groups_room(size);
    if (g) comm_groups_fill(g, rank, size, keys);
    return g;
}

comm_groups *comm_groups_make_single(int rank, int size) {
    comm_groups *g = comm_groups_room(size);
    for (int r = 0; g && r < size; r++) g->of[r] = r;
    if (g) number_groups(g, rank, size);
    return g;
}

comm_groups *comm_groups_share(comm_groups *groups) {
    if (groups) atomic_fetch_add(&groups->users, 1);
    return groups;
}

void comm_groups_release(comm_groups *groups) {
    if (groups && atomic_fetch_sub(&groups->users, 1) == 1) free(groups);
}
