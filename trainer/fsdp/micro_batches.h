/* Which rank computes which micro-batch of a step, and which sums of micro-batches it sends when. A
 * sum stands for 2^k micro-batches and begins at a multiple of 2^k: a whole subtree of the pairwise
 * sum over all micro-batches, so that the bits are those of one rank that adds them all. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FSDP_MOST_PARTS = 128 };

/* Ranks form groups of `group` consecutive ones, and each group computes consecutive micro-batches,
 * so that what it adds up by itself is few whole subtrees, whatever the other groups do. */
typedef struct fsdp_micro_batches {
    uint64_t n;       /* of a step */
    int world, group; /* ranks; group divides world */
    int local; /* 0: rank r of a group computes its micro-batches r, group + r ... and sends each by
                  itself; 1: consecutive ones, of which it sends sums after the last micro-step */
} fsdp_micro_batches;

typedef struct fsdp_part {
    uint64_t first, n; /* micro-batches */
} fsdp_part;

uint64_t fsdp_micro_batches_steps(const fsdp_micro_batches *l);
/* The micro-batch that a rank computes in a micro-step; l->n where it has none. */
uint64_t fsdp_micro_batch_of(const fsdp_micro_batches *l, int rank, uint64_t micro);
/* The sums that a rank sends after a micro-step, in order; returns how many. All of a rank's come
 * before those of the next rank. */
size_t fsdp_micro_batches_parts(const fsdp_micro_batches *l, int rank, uint64_t micro,
                                fsdp_part parts[FSDP_MOST_PARTS]);
/* Those of all ranks of a rank's group together. */
size_t fsdp_micro_batches_all_parts(const fsdp_micro_batches *l, int rank, uint64_t micro);
/* The sums that all micro-batches of a rank's group make, in order; returns how many: 1 of 2^k that
 * every group has, otherwise at most twice the logarithm of how many it has. parts may be NULL. */
size_t fsdp_micro_batches_group_parts(const fsdp_micro_batches *l, int rank,
                                      fsdp_part parts[FSDP_MOST_PARTS]);
/* Sums that a rank keeps from one micro-step to the next, at most; 0 where it sends each
 * micro-batch. */
size_t fsdp_micro_batches_kept(const fsdp_micro_batches *l, int rank);
/* Of the rank that keeps most of them. */
size_t fsdp_micro_batches_most_kept(const fsdp_micro_batches *l);
/* Partial sums of its group's micro-batches that a rank keeps from one micro-step to the next, at
 * most, but 1 at least. */
size_t fsdp_micro_batches_group_kept(const fsdp_micro_batches *l, int rank);
/* Of the group whose ranks keep most of them. */
size_t fsdp_micro_batches_most_group_kept(const fsdp_micro_batches *l);
