/* "NAME[0:2,:,-1]": a tensor and elements of it, as numpy's basic slicing has them. */
#pragma once

#include <dcp/checkpoint.h>

/* Index i of dimension d is start[d] + i step[d], for i < count[d]. */
typedef struct inspect_slice {
    const dcp_tensor *tensor;
    uint64_t start[DCP_MAX_DIMS], count[DCP_MAX_DIMS];
    int64_t step[DCP_MAX_DIMS];
    int is_index[DCP_MAX_DIMS]; /* one index: numpy drops the dimension */
} inspect_slice;

/* Finds the tensor (NAME may lack the leading slash, or "/model/") and what is meant of it (all
 * where there is no bracket): starts, stops and steps of either sign, which may be left out and are
 * cut at the ends; plain indices, which must exist; "...", once. 0, or the status to exit with. */
int inspect_slice_parse(const dcp_checkpoint *ckpt, const char *text, inspect_slice *out);

/* The dimensions that numpy keeps, into shape; their number. */
uint32_t inspect_slice_shape(const inspect_slice *s, uint64_t *shape);

/* Takes n elements, in no particular order. */
typedef void (*inspect_slice_fn)(void *ctx, const void *data, uint64_t n);
/* Reads all elements in bounded memory; `done` of `total` elements are told to on_read now and
 * then.
 */
int inspect_slice_read(dcp_checkpoint *ckpt, const inspect_slice *s, inspect_slice_fn fn,
                       void (*on_read)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                       dcp_error *err);

/* Reads the element with these indices of the slice, all its dimensions counted. */
int inspect_slice_element(dcp_checkpoint *ckpt, const inspect_slice *s, const uint64_t *index,
                          void *out, dcp_error *err);
