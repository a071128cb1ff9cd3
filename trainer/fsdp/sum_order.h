/* The order in which the gradients of a step's micro-batches are added up, and which rank computes
 * and sends what. */
#pragma once

#include <stdint.h>

#include <dcp/error.h>

#include "kernels/kernels.h"

/* The order in which a step's gradients are added up: a function of the number of micro-batches
 * alone, so that the bits depend on neither ranks nor strategy. Micro-batches of a small block are
 * added one after another, small blocks of a large block are, and large blocks are. So one sum of
 * each kind is all that has to be kept, and the error is that of pairwise summation within a
 * third up to 4,096 micro-batches (tests/trainer/fsdp_sum_order.c): n additions in a row lose
 * sqrt(n / 2) roundings, three rows of n^(1/3) lose no more than the logarithm does. */

/* Sizes of blocks, in micro-batches. The second is a multiple of the first. */
typedef struct fsdp_sum_order {
    uint64_t small, large;
} fsdp_sum_order;

/* Consecutive micro-batches that stand for one sum. */
typedef struct fsdp_part {
    uint64_t first, n;
} fsdp_part;

/* Of a step of n micro-batches. Blocks divide n where its odd part is at most FSDP_ODD_BLOCK, and
 * the three rows are as short as they can be. */
fsdp_sum_order fsdp_sum_order_of(uint64_t n);
/* One after another, in one sum. */
fsdp_sum_order fsdp_sum_order_running(void);

enum { FSDP_ODD_BLOCK = 15 };

/* Whether the newer sum is added to the older one, which ends where it begins. */
int fsdp_sum_order_joins(const fsdp_sum_order *o, fsdp_part older, fsdp_part newer);
/* What of the micro-batches first ... end - 1 becomes one sum, from the first on. */
fsdp_part fsdp_sum_order_part(const fsdp_sum_order *o, uint64_t first, uint64_t end);
/* How many sums they become. */
uint64_t fsdp_sum_order_parts(const fsdp_sum_order *o, uint64_t first, uint64_t end);

/* A sum of micro-batches in a fixed order (fsdp/sum_order.h). An addition's result replaces the
 * older sum: fp32 addition commutes, so its place changes no bit.
 *
 * Sums that were pushed since the last fsdp_sum_settle may lie in borrowed memory; they are newer
 * than all that lie in slots. The first slot may be the storage where the sum ends. The others are
 * beside it, each for all units. */

enum { FSDP_SUM_DEPTH = 16 };

typedef struct fsdp_sum_counter {
    kernels *k;
    fsdp_sum_order order;
    float *result;       /* [elems] where the sum ends */
    int result_is_used;  /* by something else until then: it is no slot */
    float *const *slots; /* [n_slots][offset + elems] those beside it */
    uint64_t n_slots;
    uint64_t offset, elems;
    uint64_t used; /* bit s: slot s holds a sum; bit n_slots: the result does */
    size_t depth;
    struct {
        fsdp_part part;
        float *at;          /* a slot's memory, or borrowed from the caller of fsdp_sum_push */
        int slot;           /* -1: borrowed */
    } sums[FSDP_SUM_DEPTH]; /* in the order of micro-batches */
} fsdp_sum_counter;

/* Memory for n slots, of all counters that share them; core_fail_memory's error. What was taken is
 * given back by the second, also after a failure; NULL is ignored. */
int fsdp_sum_take_slots(kernels *k, float ***out, uint64_t n, uint64_t elems, dcp_error *err);
void fsdp_sum_free_slots(kernels *k, float **slots, uint64_t n);

/* Adds the next micro-batch, or sum of micro-batches, of `elems` elements: its memory is used up,
 * and may not be touched before one of the functions below. The first one may lie in `result`. */
void fsdp_sum_push(fsdp_sum_counter *p, fsdp_part part, float *batch);
/* Moves sums out of borrowed memory into slots. */
void fsdp_sum_settle(fsdp_sum_counter *p);
/* Forgets all sums. */
void fsdp_sum_clear(fsdp_sum_counter *p);
/* Ends the sum, and returns where it stands until the next push; the counter is empty again. At
 * least one micro-batch was pushed. */
float *fsdp_sum_join(fsdp_sum_counter *p);
/* The same; the sum stands in the result. */
void fsdp_sum_fold(fsdp_sum_counter *p);

/* Which rank computes which micro-batch of a step, and which sums of micro-batches it sends when:
 * always whole parts of the order of additions, in that order, so that the bits are those of one
 * rank that adds them all, and nobody keeps what cannot be added yet. */

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
