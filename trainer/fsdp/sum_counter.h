/* A sum of micro-batches in an order that depends on their numbers alone: a binary counter of
 * partial sums, as in pairwise summation. Two sums that are halves of one subtree become one; what
 * is left at the end is folded from the fewest micro-batches to the most. An addition's result
 * replaces the older sum: fp32 addition commutes, so its place changes no bit.
 *
 * Sums that were pushed since the last fsdp_sum_settle may lie in borrowed memory; they are newer
 * than all that lie in slots. A sum's first slot is the storage where it ends, if that is as long.
 * The other slots are beside it, each for all units. */
#pragma once

#include "fsdp/micro_batches.h"
#include "kernels/kernels.h"

enum { FSDP_SUM_DEPTH = FSDP_MOST_PARTS };

typedef struct fsdp_sum_counter {
    kernels *k;
    float *result;       /* [elems] the first slot: where the sum ends */
    float *const *slots; /* [n_slots - 1][offset + elems] the others */
    size_t n_slots;
    uint64_t offset, elems;
    uint64_t used; /* bit s: slot s holds a sum */
    size_t depth;
    struct {
        fsdp_part part;
        float *at;          /* a slot's memory, or borrowed from the caller of fsdp_sum_push */
        int slot;           /* -1: borrowed */
    } sums[FSDP_SUM_DEPTH]; /* in the order of micro-batches */
} fsdp_sum_counter;

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
/* The same; the sum stands in the first slot. */
void fsdp_sum_fold(fsdp_sum_counter *p);
