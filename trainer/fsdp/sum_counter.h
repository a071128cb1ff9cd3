/* A sum of micro-batches in a fixed order (fsdp/sum_order.h). An addition's result replaces the
 * older sum: fp32 addition commutes, so its place changes no bit.
 *
 * Sums that were pushed since the last fsdp_sum_settle may lie in borrowed memory; they are newer
 * than all that lie in slots. The first slot may be the storage where the sum ends. The others are
 * beside it, each for all units. */
#pragma once

#include "fsdp/sum_order.h"
#include "kernels/kernels.h"

#include <dcp/error.h>

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
