/* Boxes of tensors, and whether they cover a tensor. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "dcp/tensor.h"

/* Copies of a box between two row-major layouts, as runs that are contiguous in both. */

typedef struct box_loop {
    uint64_t count, stride_a, stride_b; /* strides in bytes */
} box_loop;

/* A set of elements in two arrays, a and b, as runs that are contiguous in both. */
typedef struct box_copy {
    uint64_t run_bytes, runs;
    uint64_t base_a, base_b;
    uint32_t dims; /* loops over runs, innermost first */
    box_loop loop[DCP_MAX_DIMS - 1];
} box_copy;

/* Sets up the copy of `count` elements per dimension, starting at start_a in an array of shape_a
 * and at start_b in an array of shape_b. Everything must be within bounds. */
void core_box_copy_init(box_copy *copy, uint32_t ndim, uint64_t elem_bytes, const uint64_t *count,
                        const uint64_t *shape_a, const uint64_t *start_a, const uint64_t *shape_b,
                        const uint64_t *start_b);

/* Sets up the copy of the elements that boxes a and b of one tensor share, where each box is dense.
 * For a whole tensor, pass its whole box. Returns false, and a copy without runs, if the boxes
 * share no elements. */
bool core_box_copy_between(box_copy *copy, uint32_t ndim, uint64_t elem_bytes, const dcp_box *a,
                           const dcp_box *b);

/* Returns a duplicate of *copy in malloc'd memory, without room for unused loops: a single run uses
 * a fifth of sizeof(box_copy). So the result must not be assigned or passed by value. NULL: out of
 * memory. */
const box_copy *core_box_copy_keep(const box_copy *copy);

/* Returns the byte offsets of run i in the arrays a and b; both ascend with i. */
void core_box_copy_run(const box_copy *copy, uint64_t i, uint64_t *offset_a, uint64_t *offset_b);

/* Returns the first run that ends after byte `offset` of array a; copy->runs if there is none. */
uint64_t core_box_copy_find(const box_copy *copy, uint64_t offset);

/* Returns the number of dimensions of a tensor's boxes. It is 1 for a scalar, whose box is [0:1],
 * or [0:0] on a rank that does not hold the scalar. */
static inline uint32_t core_box_dims(uint32_t ndim) { return ndim ? ndim : 1; }

/* Returns true, and the intersection in *out, if the boxes share elements; otherwise false. */
bool core_box_intersect(uint32_t ndim, const dcp_box *a, const dcp_box *b, dcp_box *out);

bool core_box_equal(uint32_t ndim, const dcp_box *a, const dcp_box *b);

/* Returns true if dtype and shape are equal; ignores the paths. */
bool core_tensor_same(const dcp_tensor *a, const dcp_tensor *b);

/* Checks dtype and ndim, and that the size in bytes fits into 62 bits; *bytes becomes the tensor's
 * size. Returns false if a check fails. */
bool core_tensor_size(dcp_dtype dtype, uint32_t ndim, const uint64_t *shape, uint64_t *bytes);

/* Writes "[0:4, 2:3]" into text, for messages. */
void core_box_print(uint32_t ndim, const dcp_box *box, char *text, size_t size);

/* Writes "[4, 3]" into text, for messages. */
void core_shape_print(uint32_t ndim, const uint64_t *shape, char *text, size_t size);

/* Checks whether boxes cover a tensor, that is, hold each of its elements exactly once, not
 * counting replicas. */

typedef struct cover_box {
    dcp_box box;
    int rank;        /* holder of the box */
    size_t tag;      /* for the caller */
    int keeper_rank; /* out: the lowest holder of this box */
    bool keeper;     /* out: true for the lowest holder's box among equal boxes */
} cover_box;

typedef enum cover_result { COVER_EXACT, COVER_MISSING, COVER_OVERLAP } cover_result;

/* Returns the dimension that n boxes of one tensor cut finest: the one in which the longest box
 * spans the smallest fraction of the tensor. */
uint32_t core_cover_finest(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n);

/* Checks n boxes of one tensor, none of them empty, all within the shape; sorts them by their
 * starts on the finest dimension. Takes O(n log n) time, plus a bounded time if the boxes don't
 * cover the tensor. COVER_MISSING: some elements are in no box. COVER_OVERLAP: boxes[*first] and
 * boxes[*second] are not equal but share elements. If *first == *second, there are two boxes like
 * that, but the search for them was given up because it took too long. */
cover_result core_cover_check(uint32_t ndim, const uint64_t *shape, cover_box *boxes, size_t n,
                              size_t *first, size_t *second);

/* After COVER_MISSING: returns a box of elements that are in none of the boxes. */
dcp_box core_cover_hole(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n);
