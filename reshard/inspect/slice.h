/* "NAME[0:2,:,-1]": a tensor and some of its elements, as numpy's basic slicing defines them. */
#pragma once

#include <dcp/checkpoint.h>

/* Index i of dimension d is start[d] + i step[d], for i < count[d]. */
typedef struct inspect_slice {
    const dcp_tensor *tensor;
    uint64_t start[DCP_MAX_DIMS], count[DCP_MAX_DIMS];
    int64_t step[DCP_MAX_DIMS];
    int is_index[DCP_MAX_DIMS]; /* a single index: numpy drops the dimension */
} inspect_slice;

/* Parses a tensor's name (the leading slash or "/model/" may be missing) and its slice (everything
 * if there is no bracket): starts, stops and steps of either sign, which are optional and clipped
 * at the ends; single indices, which must exist; "...", once. Returns 0 or the exit status. */
int inspect_slice_parse(const dcp_checkpoint *ckpt, const char *text, inspect_slice *out);

/* Stores the dimensions that numpy keeps in `shape`, and returns their number. */
uint32_t inspect_slice_shape(const inspect_slice *s, uint64_t *shape);

/* Receives n elements, in no particular order. */
typedef void (*inspect_slice_fn)(void *ctx, const void *data, uint64_t n);
/* Reads all elements in bounded memory. Calls on_read now and then with the number of elements
 * done, of `total`. */
int inspect_slice_read(dcp_checkpoint *ckpt, const inspect_slice *s, inspect_slice_fn fn,
                       void (*on_read)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                       dcp_error *err);

/* Reads the element with these indices of the slice, including the dimensions that numpy drops. */
int inspect_slice_element(dcp_checkpoint *ckpt, const inspect_slice *s, const uint64_t *index,
                          void *out, dcp_error *err);
