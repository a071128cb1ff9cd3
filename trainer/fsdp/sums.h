/* Sums of micro-batches in an order that depends on their numbers alone: a binary counter of
 * partial sums, as in pairwise summation. Two sums that are halves of one subtree become one; what
 * is left at the end is folded from the fewest micro-batches to the most. fsdp_sums is a counter a
 * unit, with the memory of all. */
#ifndef TRAINER_FSDP_SUMS_H
#define TRAINER_FSDP_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"
#include "fsdp/fsdp_plan.h"
#include "fsdp/micro_batches.h"
#include "kernels/kernels.h"

enum { FSDP_SUM_DEPTH = FSDP_MOST_PARTS };

typedef struct fsdp_sum {
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
} fsdp_sum;

/* Adds the next micro-batch, or sum of micro-batches, of `elems` elements: its memory is used up,
 * and may not be touched before fsdp_sum_settle, fsdp_sum_join, fsdp_sum_fold or fsdp_sum_clear.
 * The first one may lie in `result`. */
void fsdp_sum_push(fsdp_sum *p, fsdp_part part, float *batch);
/* Moves sums out of borrowed memory into slots. */
void fsdp_sum_settle(fsdp_sum *p);
/* Ends the sum, and returns where it stands until the next push; the counter is empty again. At
 * least one micro-batch was pushed. */
float *fsdp_sum_join(fsdp_sum *p);
/* The same; the sum stands in the first slot. */
void fsdp_sum_fold(fsdp_sum *p);
/* Forgets all sums. */
void fsdp_sum_clear(fsdp_sum *p);

/* The partial sums of gradients that a rank keeps, and their memory. */
typedef struct fsdp_sums {
    fsdp_sum *own;   /* [units] of the piece that this rank adds up; ends in its storage */
    fsdp_sum *local; /* [units] of this rank's micro-batches, whole */
    float **own_slots, **local_slots;
    size_t n_own, n_local;
    kernels *k;
} fsdp_sums;

/* grads: this rank's storage [grad_elems]; borrowed. fsdp_sums_destroy also after a failure. */
int fsdp_sums_create(const fsdp_plan *plan, kernels *k, float *grads, fsdp_sums *out,
                     dcp_error *err);
void fsdp_sums_destroy(fsdp_sums *s);

#endif
