/* Which rank computes which micro-batch of a step, and which sums of micro-batches it sends when:
 * always whole parts of the order of additions, in that order, so that the bits are those of one
 * rank that adds them all, and nobody keeps what cannot be added yet. */
#pragma once

#include "fsdp/sum_order.h"

enum { FSDP_MOST_PARTS = 8 };

/* Each rank computes a block of consecutive micro-batches, adds them up, and sends the sum. The
 * ranks of a group take blocks by turns until the group's run of consecutive micro-batches is
 * done; groups take runs by turns. */
typedef struct fsdp_micro_batches {
    uint64_t n; /* of a step */
    int world;  /* ranks */
    int group;  /* of so many consecutive ones, which divides `world`; `world` where ranks need not
                   add up in groups first, or cannot: n does not divide into runs */
    uint64_t block, run;
    fsdp_sum_order order;
} fsdp_micro_batches;

/* How gradients are added up. */
typedef struct fsdp_sum_strategy {
    int group; /* ranks that add up among themselves first, where that can be; `world`: all */
    int local; /* ranks add up their own micro-batches first, where blocks come out even */
    int ring;  /* somebody else adds in an order of his own: a rank sends all of its own at once */
} fsdp_sum_strategy;

fsdp_micro_batches fsdp_micro_batches_of(uint64_t n, int world, fsdp_sum_strategy s);

uint64_t fsdp_micro_batches_steps(const fsdp_micro_batches *l);
/* The micro-batch that a rank computes in a micro-step; l->n where it has none. */
uint64_t fsdp_micro_batch_of(const fsdp_micro_batches *l, int rank, uint64_t micro);
/* Whether ranks send sums after a micro-step. */
int fsdp_micro_batches_are_sent(const fsdp_micro_batches *l, uint64_t micro);
/* What a rank sends after a micro-step; .n is 0 where it has nothing. What a rank of a group sends
 * comes before what the next one does. */
fsdp_part fsdp_micro_batches_part(const fsdp_micro_batches *l, int rank, uint64_t micro);
/* How many of a rank's group send something then. */
uint64_t fsdp_micro_batches_senders(const fsdp_micro_batches *l, int rank, uint64_t micro);

/* Where there are several groups: whether they have computed a run after the micro-step; and the
 * run of a rank's group, which consists of at most FSDP_MOST_PARTS sums. */
int fsdp_micro_batches_end_run(const fsdp_micro_batches *l, uint64_t micro);
fsdp_part fsdp_micro_batches_run(const fsdp_micro_batches *l, int rank, uint64_t micro);

/* Sums that are kept from one micro-step to the next, at most: of a rank's own block; of what its
 * group adds up; and of what groups send each other. */
uint64_t fsdp_micro_batches_kept_local(const fsdp_micro_batches *l);
uint64_t fsdp_micro_batches_kept(const fsdp_micro_batches *l);
uint64_t fsdp_micro_batches_kept_across(const fsdp_micro_batches *l);
