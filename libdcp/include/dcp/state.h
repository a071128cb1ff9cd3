/* The state dict: the global tensors of a run, and the boxes of them that this rank holds, with
 * their memory. It is built once and used for any number of saves and loads. None of these
 * functions is collective. */
#ifndef DCP_STATE_H
#define DCP_STATE_H

#include <stddef.h>

#include "dcp/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_state dcp_state;

/* Writes bytes [offset, offset + bytes) of a box, laid out densely in row-major order, to `out`.
 * Returns DCP_OK, or fills in `err` and returns its status. Called on the thread that saves, for
 * parts in any order; each byte is requested at least once. */
typedef int (*dcp_source_fn)(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

/* Creates an empty state. */
DCP_API int dcp_state_create(dcp_state **out, dcp_error *err);
/* Frees the state. NULL is ignored. */
DCP_API void dcp_state_destroy(dcp_state *state);

/* Adds a tensor, and the box of it that this rank holds. For further boxes of the tensor, call
 * again with the same tensor.
 *   tensor  copied. The path is "/section/name" of at most 1,024 bytes, UTF-8 without NUL, without
 *           empty, "." or ".." components, not below "/dcp" (reserved), and not a folder of another
 *           tensor. Layout sharded refuses components that end in @digits (dcp/layout.h).
 *   box     copied. NULL: the whole tensor. An empty box: this rank holds nothing of the tensor.
 *   data    the box's elements, dense, row-major; borrowed until the state is destroyed. dcp_save
 *           reads it, dcp_load writes it. May be NULL for an empty box.
 *
 * All ranks must add the same tensors; a rank that holds nothing of a tensor adds an empty box.
 * Over all ranks, each element must be held at least once, and boxes of different ranks must be
 * either equal (replicas) or disjoint. dcp_save checks this, and its error names the tensor and the
 * ranks; dcp_load accepts any boxes.
 * DCP_ERR_ARG: an invalid path, dtype or ndim, a tensor of 2^62 bytes or more, or a box outside the
 * tensor.
 * DCP_ERR_MISMATCH: the tensor has already been added with a different dtype or shape. */
DCP_API int dcp_state_add(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                          void *data, dcp_error *err);

/* Like dcp_state_add, for elements in host memory that is not dense: columns of a matrix, an array
 * within its ghost cells, padded rows, a different order of dimensions.
 *   data     the address of the box's first element, the one at index box->start
 *   strides  copied. For each dimension, the bytes from an element to the one with the next index.
 *            They need not be multiples of the element's size. They may be negative (reversed) and,
 *            for saves, 0 (one element stands for the whole dimension). NULL: dense.
 *
 * Bytes between the elements are neither read nor written. Files, checksums and proofs are those of
 * the dense box. If the strides describe dense memory, the call is equivalent to dcp_state_add. A
 * load requires that elements do not share bytes. It checks the dimensions that have more than one
 * index, from the shortest stride to the longest: each stride must be at least as long as the range
 * of bytes that all earlier dimensions in this order span. dcp_load refuses other strides
 * (DCP_ERR_ARG). Strided memory is copied once more; if about 4 KiB or more are contiguous, this
 * takes less time than the disk needs. Single elements that are far apart take longer.
 * DCP_ERR_ARG: as for dcp_state_add, or the strides lead outside the address space. */
DCP_API int dcp_state_add_strided(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                                  void *data, const int64_t *strides, dcp_error *err);

/* Does the work of `n` calls of dcp_state_add, in their order, and many times faster if `n` is
 * large: box i is boxes[i] of tensors[i], with elements at data[i]. If a box is refused, none is
 * added, and the error names its tensor.
 *   tensors  copied. A tensor may occur several times, with one box each time, and may have been
 *            added before.
 *   boxes    copied. NULL: all boxes are whole tensors.
 *   data     the array is copied, the elements are borrowed. NULL: all boxes are empty. */
DCP_API int dcp_state_add_many(dcp_state *state, size_t n, const dcp_tensor *tensors,
                               const dcp_box *boxes, void *const *data, dcp_error *err);

/* Like dcp_state_add, for elements that are not in memory but can be read piece by piece: for tools
 * that rewrite checkpoints larger than memory. Such a state can be saved but not loaded.
 *   source, ctx  supply the elements
 *   rank         the rank that holds the box in a save of DCP_LAYOUT_SHARDED (see dcp/save.h); -1:
 *                the calling rank */
DCP_API int dcp_state_add_source(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                                 dcp_source_fn source, void *ctx, int rank, dcp_error *err);

/* Return the number of tensors added so far, and the bytes of this rank's boxes. */
DCP_API size_t dcp_state_tensors(const dcp_state *state);
DCP_API uint64_t dcp_state_local_bytes(const dcp_state *state);

#ifdef __cplusplus
}
#endif
#endif
