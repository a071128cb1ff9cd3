/* Which rank computes which micro-batch of a step, and which sums of micro-batches it sends when. A
 * sum stands for 2^k micro-batches and begins at a multiple of 2^k: a whole subtree of the pairwise
 * sum over all micro-batches, so that the bits are those of one rank that adds them all. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FSDP_MOST_PARTS = 128 };

typedef struct fsdp_micro_batches {
    uint64_t n; /* of a step */
    int world;
    int local; /* 0: rank r computes micro-batches r, world + r ... and sends each by itself; 1: it
                  computes consecutive ones, and sends sums of them after the last micro-step */
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
/* Those of all ranks together. */
size_t fsdp_micro_batches_all_parts(const fsdp_micro_batches *l, uint64_t micro);
/* Sums that a rank keeps from one micro-step to the next, at most; 0 where it sends each
 * micro-batch. */
size_t fsdp_micro_batches_kept(const fsdp_micro_batches *l, int rank);
/* Of the rank that keeps most of them. */
size_t fsdp_micro_batches_most_kept(const fsdp_micro_batches *l);
/* Memory for sums of `n` micro-batches in order, where `together` of them are added at a time: how
 * many partial sums there are at most. */
size_t fsdp_micro_batches_slots(uint64_t n, uint64_t together);
