/* The tensors of a decoder and of its optimizer, named and shaped as dcp-bench's but with a row of
 * each for every rank: then each rank holds a box of each tensor, which is the most there can be.
 */
#ifndef TESTS_BENCH_SCALE_WORK_H
#define TESTS_BENCH_SCALE_WORK_H

#include "core/state_dict.h"

typedef struct work {
    dcp_state *state;
    size_t n;
    char (*paths)[96];
} work;

void work_make(work *w, int layers, int ranks);
void work_free(work *w);

/* The boxes of one rank from now on: of all tensors, cut on dimension 0; or of none. */
void work_hold(work *w, int rank, int ranks);
void work_hold_nothing(work *w);
/* Adds the rank's box of one tensor, in the state's order of paths. */
void work_hold_one(state_tensor *t, int rank, int ranks);

#endif
