/* Sums of leaves in an order that depends on their number alone: a binary counter of partial sums,
 * as in pairwise summation. Two sums of equally many leaves become one; what is left at the end is
 * folded from the fewest leaves to the most. */
#ifndef TRAINER_FSDP_PARTIAL_H
#define TRAINER_FSDP_PARTIAL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum { PARTIAL_DEPTH = 64 };

typedef struct partial_sums {
    kernels *k;
    float *const *slots; /* [n_slots][offset + elems]; the sum ends in the first */
    size_t n_slots;
    uint64_t offset, elems;
    uint64_t used; /* bit s: slot s holds a sum */
    size_t depth;
    struct {
        uint64_t leaves;
        float *at;         /* a slot's memory, or borrowed from the caller of partial_push */
        int slot;          /* -1: borrowed */
    } sums[PARTIAL_DEPTH]; /* most leaves first */
} partial_sums;

/* Slots that sums of `leaves` leaves take when `together` of them are pushed before each settle. */
size_t partial_slots(uint64_t leaves, uint64_t together);

/* Adds the next leaf, of `elems` elements: its memory is used up, and may not be touched before
 * partial_settle or partial_fold. */
void partial_push(partial_sums *p, float *leaf);
/* Moves sums out of borrowed memory into slots. */
void partial_settle(partial_sums *p);
/* Ends the sum: it stands in the first slot, and the counter is empty again. At least one leaf was
 * pushed. */
void partial_fold(partial_sums *p);

#endif
