/* A slice, such as "NAME[0:2,:,-1]": a tensor, and some of its elements, as in numpy's basic
 * slicing. */
#pragma once

#include <dcp/checkpoint.h>
#include <stdbool.h>

/* Index i of dimension d is start[d] + i step[d], for i < count[d]. */
typedef struct inspect_slice {
    const dcp_tensor *tensor;
    uint64_t start[DCP_MAX_DIMS], count[DCP_MAX_DIMS];
    int64_t step[DCP_MAX_DIMS];
    bool is_index[DCP_MAX_DIMS]; /* a single index; numpy then drops the dimension */
} inspect_slice;

/* Parses a tensor's name, in which the leading slash or "/model/" may be missing, and its slice.
 * Without a bracket, the slice is the whole tensor. A dimension has a start, a stop and a step, all
 * optional and of either sign, and clipped at the ends; or a single index, which must exist. "..."
 * may appear once. Returns 0 or the exit status. */
int inspect_slice_parse(const dcp_checkpoint *ckpt, const char *text, inspect_slice *out);

/* Stores in `shape` the extents of the dimensions that numpy keeps, and returns how many there
 * are. */
uint32_t inspect_slice_shape(const inspect_slice *s, uint64_t *shape);

/* Receives n elements of the slice; the order of elements is unspecified. */
typedef void (*inspect_slice_fn)(void *ctx, const void *data, uint64_t n);
/* Reads all elements of the slice in bounded memory. Calls on_read repeatedly with the number of
 * elements that have been read, and the total number. */
int inspect_slice_read(dcp_checkpoint *ckpt, const inspect_slice *s, inspect_slice_fn fn,
                       void (*on_read)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                       dcp_error *err);

/* Reads the element at index[] of the slice. index[] has an index for each dimension, including the
 * dimensions that numpy drops. */
int inspect_slice_element(dcp_checkpoint *ckpt, const inspect_slice *s, const uint64_t *index,
                          void *out, dcp_error *err);
