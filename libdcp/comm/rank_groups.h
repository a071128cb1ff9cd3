/* Ranks in groups: those of one host, or those that share memory. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* Each rank is in one group. Groups are numbered in the order of their lowest ranks. */
typedef struct comm_groups {
    int n, own; /* how many there are; the number of this rank's */
    int *of;    /* [rank]: the number of its group */
    int *first; /* [group]: where its ranks begin in `ranks`; first[n] is the number of all ranks */
    int *ranks; /* ascending within a group */
    atomic_int users;
} comm_groups;

/* How many ranks a group has. */
static inline int comm_groups_size(const comm_groups *g, int group) {
    return g->first[group + 1] - g->first[group];
}
/* A rank of a group: the lowest has number 0. */
static inline int comm_groups_rank(const comm_groups *g, int group, int number) {
    return g->ranks[g->first[group] + number];
}

/* How many ranks the largest group has. */
int comm_groups_largest(const comm_groups *groups);

/* Memory for groups of so many ranks, which have one user. NULL where it is short. */
comm_groups *comm_groups_room(int size);
/* Fills it: ranks with equal keys are in one group. */
void comm_groups_fill(comm_groups *groups, int rank, int size, const uint64_t *keys);
/* Both. */
comm_groups *comm_groups_make(int rank, int size, const uint64_t *keys);
/* Each rank in a group of its own. */
comm_groups *comm_groups_make_single(int rank, int size);
/* One more user. */
comm_groups *comm_groups_share(comm_groups *groups);
/* Frees it after its last user. NULL is ignored. */
void comm_groups_release(comm_groups *groups);
