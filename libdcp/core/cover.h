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

/* Judges n boxes (not empty) of one tensor; orders them by their starts on the finest dimension.
 * COVER_MISSING: some elements are in no box. COVER_OVERLAP: boxes[*first] and boxes[*second] are
 * different and share elements. */
cover_result core_cover_check(uint32_t ndim, const uint64_t *shape, cover_box *boxes, size_t n,
                              size_t *first, size_t *second);

/* After COVER_MISSING: a box of elements that are in none of the boxes. */
dcp_box core_cover_hole(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n);
