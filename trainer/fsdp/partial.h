/* Sums of leaves in an order that depends on their numbers alone: a binary counter of partial sums,
 * as in pairwise summation. Two sums that are halves of one subtree become one; what is left at the
 * end is folded from the fewest leaves to the most. */
#ifndef TRAINER_FSDP_PARTIAL_H
#define TRAINER_FSDP_PARTIAL_H

#include <stddef.h>
#include <stdint.h>

#include "fsdp/leaves.h"
#include "kernels/kernels.h"

enum { PARTIAL_DEPTH = FSDP_MOST_PARTS };

typedef struct partial_sums {
    kernels *k;
    float *home;         /* [elems] the first slot: where the sum ends */
    float *const *slots; /* [n_slots - 1][offset + elems] the others */
    size_t n_slots;
    uint64_t offset, elems;
    uint64_t used; /* bit s: slot s holds a sum */
    size_t depth;
    struct {
        fsdp_part part;
        float *at;         /* a slot's memory, or borrowed from the caller of partial_push */
        int slot;          /* -1: borrowed */
    } sums[PARTIAL_DEPTH]; /* in the order of leaves */
} partial_sums;

/* Slots that sums of `leaves` leaves take when `together` of them are pushed before each settle. */
size_t partial_slots(uint64_t leaves, uint64_t together);

/* Adds the next leaf, or sum of leaves, of `elems` elements: its memory is used up, and may not be
 * touched before partial_settle, partial_join, partial_fold or partial_clear. The first one may
 * lie in `home`. */
void partial_push(partial_sums *p, fsdp_part part, float *leaf);
/* Moves sums out of borrowed memory into slots. */
void partial_settle(partial_sums *p);
/* Ends the sum, and returns where it stands until the next push; the counter is empty again. At
 * least one leaf was pushed. */
float *partial_join(partial_sums *p);
/* The same; the sum stands in the first slot. */
void partial_fold(partial_sums *p);
/* Forgets all sums. */
void partial_clear(partial_sums *p);

#endif
