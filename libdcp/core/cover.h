/* Whether boxes cover a tensor: every element once, replicas aside. */
#pragma once

#include <stddef.h>

#include "dcp/tensor.h"

typedef struct cover_box {
    dcp_box box;
    int rank;        /* its holder */
    size_t tag;      /* the caller's */
    int keeper_rank; /* out: the lowest holder of this box */
    int keeper;      /* out: 1 for one of each set of equal boxes, its lowest holder's */
} cover_box;

typedef enum cover_result { COVER_EXACT, COVER_MISSING, COVER_OVERLAP } cover_result;

/* The dimension that n boxes of one tensor cut finest: whose longest box is the smallest part of
 * it.
 */
uint32_t core_cover_finest(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n);

/* Judges n boxes (not empty, within the shape) of one tensor; orders them by their starts on the
 * finest dimension. Takes n log n steps, and where they don't cover it a bounded number more.
 * COVER_MISSING: some elements are in no box. COVER_OVERLAP: boxes[*first] and boxes[*second] are
 * different and share elements; *first = *second: some two do, which would take too long to find.
 */
cover_result core_cover_check(uint32_t ndim, const uint64_t *shape, cover_box *boxes, size_t n,
                              size_t *first, size_t *second);

/* After COVER_MISSING: a box of elements that are in none of the boxes. */
dcp_box core_cover_hole(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n);
