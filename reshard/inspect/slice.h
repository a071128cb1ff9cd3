/* "NAME[0:2,:,-1]": a tensor and elements of it, as numpy's basic slicing has them. */
#ifndef RESHARD_SLICE_H
#define RESHARD_SLICE_H

#include <dcp/checkpoint.h>

/* Index i of dimension d is start[d] + i step[d], for i < count[d]. */
typedef struct slice {
    const dcp_tensor *tensor;
    uint64_t start[DCP_MAX_DIMS], count[DCP_MAX_DIMS];
    int64_t step[DCP_MAX_DIMS];
    int is_index[DCP_MAX_DIMS]; /* one index: numpy drops the dimension */
} slice;

/* Finds the tensor (NAME may lack the leading slash, or "/model/") and what is meant of it (all
 * where there is no bracket): starts, stops and steps of either sign, which may be left out and are
 * cut at the ends; plain indices, which must exist; "...", once. 0, or the status to exit with. */
int slice_parse(const dcp_checkpoint *ckpt, const char *text, slice *out);

uint64_t slice_elems(const slice *s);
/* The dimensions that numpy keeps, into shape; their number. */
uint32_t slice_shape(const slice *s, uint64_t *shape);

/* Takes n elements, in no particular order. */
typedef void (*slice_fn)(void *ctx, const void *data, uint64_t n);
/* Reads all elements in bounded memory; `done` of `total` elements are told to on_read now and
 * then.
 */
int slice_read(dcp_checkpoint *ckpt, const slice *s, slice_fn fn,
               void (*on_read)(void *ctx, uint64_t done, uint64_t total), void *ctx,
               dcp_error *err);

/* Reads the element with these indices of the slice, all its dimensions counted. */
int slice_element(dcp_checkpoint *ckpt, const slice *s, const uint64_t *index, void *out,
                  dcp_error *err);

#endif
