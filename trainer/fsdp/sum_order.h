/* The order in which the gradients of a step's micro-batches are added up, and which rank computes
 * and sends what. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <dcp/error.h>

#include "kernels/kernels.h"

/* The order in which a step's gradients are added up. It is a function of the number of
 * micro-batches alone, so the bits depend on neither ranks nor strategy. The micro-batches of a
 * small block are added one after another, then the small blocks of a large block, then the large
 * blocks. So only one sum has to be stored for each of these three levels. Up to 4,096
 * micro-batches, the error is at most a third larger than with pairwise summation
 * (tests/trainer/fsdp_sum_order.c): n additions in a row have an error of sqrt(n / 2) roundings, so
 * three rows of n^(1/3) additions have about the error of pairwise summation's log2(n)
 * additions. */

/* Sizes of blocks, in micro-batches. `large` is a multiple of `small`. */
typedef struct fsdp_sum_order {
    uint64_t small, large;
} fsdp_sum_order;

/* Consecutive micro-batches whose gradients form one sum. */
typedef struct fsdp_part {
    uint64_t first, n;
} fsdp_part;

/* The order for a step of n micro-batches. The block sizes make the three rows of additions as
 * short as possible. They divide n if the odd part of n is at most FSDP_ODD_BLOCK. */
fsdp_sum_order fsdp_sum_order_of(uint64_t n);
/* The order that adds all micro-batches to a single sum, one after another. */
fsdp_sum_order fsdp_sum_order_running(void);

enum { FSDP_ODD_BLOCK = 15 };

/* Returns true if the newer sum is added to the older one, which ends where the newer begins. */
bool fsdp_sum_order_joins(const fsdp_sum_order *o, fsdp_part older, fsdp_part newer);
/* The longest part of micro-batches first ... end - 1 that starts at `first` and becomes one
 * sum. */
fsdp_part fsdp_sum_order_part(const fsdp_sum_order *o, uint64_t first, uint64_t end);
/* The number of sums that micro-batches first ... end - 1 become. */
uint64_t fsdp_sum_order_parts(const fsdp_sum_order *o, uint64_t first, uint64_t end);

/* A sum of micro-batches in the fixed order. An addition's result replaces the older sum; fp32
 * addition is commutative, so the order of its two operands does not change any bit.
 *
 * Sums that were pushed since the last fsdp_sum_move_to_slots may be in borrowed memory; they are
 * newer than all sums in slots. One of the slots may be `result`, the storage of the final sum. The
 * others are separate memory, each for all units. */

enum { FSDP_SUM_DEPTH = 16 };

typedef struct fsdp_sum_counter {
    kernels *k;
    fsdp_sum_order order;
    float *result;       /* [elems] receives the final sum */
    bool result_is_used; /* the memory of `result` is used for something else until the sum ends, so
                           it is not a slot */
    float *const *slots; /* [n_slots][offset + elems] the separate slots */
    uint64_t n_slots;
    uint64_t offset, elems;
    uint64_t used; /* bit s: slot s holds a sum; bit n_slots: the result does */
    size_t depth;
    struct {
        fsdp_part part;
        float *at;          /* a slot's memory, or borrowed from the caller of fsdp_sum_push */
        int slot;           /* the slot's number; -1: `at` is borrowed */
    } sums[FSDP_SUM_DEPTH]; /* in the order of micro-batches */
} fsdp_sum_counter;

/* Allocates n slots for all counters that share them; fails with core_fail_memory's error. The
 * second function frees what was allocated, even after a failure; NULL is ignored. */
int fsdp_sum_allocate_slots(kernels *k, float ***out, uint64_t n, uint64_t elems, dcp_error *err);
void fsdp_sum_free_slots(kernels *k, float **slots, uint64_t n);

/* Adds the next micro-batch, or sum of micro-batches, of `elems` elements. Its memory is
 * overwritten, and must not be used before one of the functions below has been called. The memory
 * of the first micro-batch or sum may be `result`. */
void fsdp_sum_push(fsdp_sum_counter *p, fsdp_part part, float *batch);
/* Moves sums out of borrowed memory into slots. */
void fsdp_sum_move_to_slots(fsdp_sum_counter *p);
/* Discards all sums. */
void fsdp_sum_clear(fsdp_sum_counter *p);
/* Ends the sum, and returns it; the memory is valid until the next push. The counter is then empty.
 * At least one micro-batch must have been pushed. */
float *fsdp_sum_join(fsdp_sum_counter *p);
/* Ends the sum like fsdp_sum_join, and stores it in the result. */
void fsdp_sum_fold(fsdp_sum_counter *p);

/* The micro-batches that each rank computes in a step, and the sums of micro-batches that it sends.
 * The sums are whole parts of the order of additions and are sent in that order. So the result has
 * the same bits as if a single rank added all micro-batches, and no rank stores sums that cannot be
 * added yet. */

enum { FSDP_MAX_PARTS = 8 };

/* Each rank computes a block of consecutive micro-batches, adds them up, and sends the sum. The
 * ranks of a group compute blocks in turn until the group's run of consecutive micro-batches is
 * done; groups compute runs in turn. */
typedef struct fsdp_micro_batches {
    uint64_t n; /* the number of micro-batches of a step */
    int world;  /* the number of ranks */
    /* The number of consecutive ranks in a group, which divides `world`. It is `world` if ranks
     * need not add up in groups first, or if they cannot, because n is not divisible into runs. */
    int group;
    uint64_t block, run;
    fsdp_sum_order order;
} fsdp_micro_batches;

/* How gradients are added up. */
typedef struct fsdp_sum_strategy {
    int group;  /* the number of ranks that add up among themselves first, if possible; `world`: all
                   ranks */
    bool local; /* ranks add up their own micro-batches first, if blocks divide evenly */
    bool ring;  /* the transport adds in its own order, so a rank sends the sum of all of its own
                  micro-batches at once */
} fsdp_sum_strategy;

fsdp_micro_batches fsdp_micro_batches_of(uint64_t n, int world, fsdp_sum_strategy s);

uint64_t fsdp_micro_batches_steps(const fsdp_micro_batches *l);
/* The micro-batch that a rank computes in a micro-step; l->n if it has none. */
uint64_t fsdp_micro_batch_of(const fsdp_micro_batches *l, int rank, uint64_t micro);
/* Returns true if ranks send sums after a micro-step. */
bool fsdp_micro_batches_are_sent(const fsdp_micro_batches *l, uint64_t micro);
/* Returns the part that a rank sends after a micro-step; .n is 0 if it sends nothing. In the order
 * of additions, a rank's part comes before the part of the group's next rank. */
fsdp_part fsdp_micro_batches_part(const fsdp_micro_batches *l, int rank, uint64_t micro);
/* Returns the number of ranks in a rank's group that send something after a micro-step. */
uint64_t fsdp_micro_batches_senders(const fsdp_micro_batches *l, int rank, uint64_t micro);

/* For several groups: the first function returns true if the groups complete a run in this
 * micro-step; the second returns the run of a rank's group, which consists of at most
 * FSDP_MAX_PARTS sums. */
bool fsdp_micro_batches_end_run(const fsdp_micro_batches *l, uint64_t micro);
fsdp_part fsdp_micro_batches_run(const fsdp_micro_batches *l, int rank, uint64_t micro);

/* The largest number of sums that are stored from one micro-step to the next: for a rank's own
 * block, for what its group adds up, and for what groups send each other. */
uint64_t fsdp_micro_batches_stored_local(const fsdp_micro_batches *l);
uint64_t fsdp_micro_batches_stored(const fsdp_micro_batches *l);
uint64_t fsdp_micro_batches_stored_across(const fsdp_micro_batches *l);
