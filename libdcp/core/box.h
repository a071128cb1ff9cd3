/* Boxes of tensors, and whether they cover a tensor. */
#pragma once

#include <stddef.h>

#include "dcp/tensor.h"

/* Boxes of tensors, and the runs of bytes that two row-major layouts of one box share. */

typedef struct box_loop {
    uint64_t count, stride_a, stride_b; /* strides in bytes */
} box_loop;

/* One set of elements that lies in two arrays, a and b: as runs that are contiguous in both. */
typedef struct box_copy {
    uint64_t run_bytes, runs;
    uint64_t base_a, base_b;
    uint32_t dims; /* loops over runs, innermost first */
    box_loop loop[DCP_MAX_DIMS - 1];
} box_copy;

/* `count` elements a side, starting at start_a in an array of shape_a and at start_b in one of
 * shape_b. All within bounds. */
void core_box_copy_init(box_copy *copy, uint32_t ndim, uint64_t elem_bytes, const uint64_t *count,
                        const uint64_t *shape_a, const uint64_t *start_a, const uint64_t *shape_b,
                        const uint64_t *start_b);

/* The elements that boxes a and b of one tensor share, each box laid out densely. A whole tensor is
 * its whole box. Returns 0, and a copy without runs, where they share none. */
int core_box_copy_between(box_copy *copy, uint32_t ndim, uint64_t elem_bytes, const dcp_box *a,
                          const dcp_box *b);

/* The copy in memory of the size that it needs, which for a single run is a fifth: not to be copied
 * by value. Freed with free(). NULL: out of memory. */
const box_copy *core_box_copy_keep(const box_copy *copy);

/* Byte offsets of run i in a and b; both ascend with i. */
void core_box_copy_run(const box_copy *copy, uint64_t i, uint64_t *offset_a, uint64_t *offset_b);

/* The first run that ends after byte `offset` of a; copy->runs where there is none. */
uint64_t core_box_copy_find(const box_copy *copy, uint64_t offset);

/* Dimensions that a box of a tensor has: a scalar's is [0:1] or, where it is not held, [0:0]. */
static inline uint32_t core_box_dims(uint32_t ndim) { return ndim ? ndim : 1; }

/* 1 and *out where the boxes share elements, else 0. */
int core_box_intersect(uint32_t ndim, const dcp_box *a, const dcp_box *b, dcp_box *out);

int core_box_equal(uint32_t ndim, const dcp_box *a, const dcp_box *b);

/* 1 where dtype and shape are the same, whatever the paths. */
int core_tensor_same(const dcp_tensor *a, const dcp_tensor *b);

/* Checks dtype, ndim, and that bytes fit in 63 bits; *bytes is the tensor's size. Returns 0 where
 * they don't. */
int core_tensor_size(dcp_dtype dtype, uint32_t ndim, const uint64_t *shape, uint64_t *bytes);

/* "[0:4, 2:3]" into text, for messages. */
void core_box_print(uint32_t ndim, const dcp_box *box, char *text, size_t size);

/* "[4, 3]" likewise. */
void core_shape_print(uint32_t ndim, const uint64_t *shape, char *text, size_t size);

/* Whether boxes cover a tensor: every element once, replicas aside. */

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
