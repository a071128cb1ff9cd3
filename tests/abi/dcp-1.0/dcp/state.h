/* The state dict: which global tensors there are, and which boxes of them this rank holds where.
 * Built once, then used for any number of saves and loads. */
#ifndef DCP_STATE_H
#define DCP_STATE_H

#include <stddef.h>

#include "dcp/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_state dcp_state;

/* Supplies bytes [offset, offset + bytes) of a box laid out densely in row-major order, into `out`.
 * Returns DCP_OK or fills `err`. Called from the thread that saves, in any order, each byte once or
 * more. */
typedef int (*dcp_source_fn)(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

DCP_API int dcp_state_create(dcp_state **out, dcp_error *err);
DCP_API void dcp_state_destroy(dcp_state *state);

/* Adds a tensor, and the box of it that this rank holds.
 *   tensor  copied. Path: "/section/name" of at most 1,024 bytes, UTF-8 without NUL, no empty, "."
 *           or ".." component, not below "/dcp" (reserved) and not a folder of another tensor.
 *           Layout sharded refuses components that end in @digits (dcp/save.h).
 *   box     copied; NULL means the whole tensor. An empty box says that this rank holds nothing.
 *   data    the box's elements, dense, row-major; borrowed until the state is destroyed. Read by
 *           dcp_save, written by dcp_load. May be NULL for an empty box.
 * Call again with the same tensor for further boxes of it. All ranks add the same tensors (with
 * empty boxes where they hold nothing); over all ranks each element is held at least once, and
 * boxes of different ranks are either equal (replicas) or disjoint. dcp_save checks this and names
 * the tensor and the ranks where it does not hold; dcp_load takes any boxes.
 * DCP_ERR_ARG: bad path, dtype, ndim, 2^62 bytes and more, or a box outside the tensor.
 * DCP_ERR_MISMATCH: added before with another dtype or shape. */
DCP_API int dcp_state_add(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                          void *data, dcp_error *err);

/* dcp_state_add for elements in host memory that is not dense: columns of a matrix, an array within
 * its ghost cells, padded rows, another order of dimensions.
 *   data     the address of the box's first element, that of index box->start.
 *   strides  copied: for each dimension, the bytes from an element to the one with the next index;
 *            NULL: dense. They may be no multiples of the element's size. They may be negative
 *            (reversed) and, for saves, 0 (one element stands for all of the dimension).
 * Nothing between the elements is read or written. What is saved, its checksums and proofs are
 * those of the dense box. Where the strides are those of dense memory, so is everything else.
 * A load needs elements that don't share bytes: with dimensions of one index left out, and the
 * others from the shortest stride to the longest, each stride has to reach beyond all elements of
 * those before it. dcp_load refuses others (DCP_ERR_ARG).
 * It costs a copy in memory, which a disk hides where about 4 KiB and more are contiguous; single
 * elements far from each other take longer.
 * DCP_ERR_ARG, too: strides that lead beyond the addresses that there are. */
DCP_API int dcp_state_add_strided(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                                  void *data, const int64_t *strides, dcp_error *err);

/* n calls of dcp_state_add at once, in their order, and many times faster where n is large: box i
 * is boxes[i] of tensors[i] at data[i]. The arrays are copied, the elements borrowed. `boxes` NULL:
 * all are whole tensors. `data` NULL: all are empty. A tensor may come several times, with a box
 * each, and may have been added before. All or nothing: where one box is refused, the state is as
 * it was, and the error names the tensor. */
DCP_API int dcp_state_add_many(dcp_state *state, size_t n, const dcp_tensor *tensors,
                               const dcp_box *boxes, void *const *data, dcp_error *err);

/* dcp_state_add for elements that are not in memory but can be read piece by piece, for tools that
 * rewrite checkpoints larger than memory. Such a state can be saved, not loaded. `rank` says whose
 * box it is in a save of layout DCP_LAYOUT_SHARDED (see dcp/save.h); -1: the calling rank's. */
DCP_API int dcp_state_add_source(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                                 dcp_source_fn source, void *ctx, int rank, dcp_error *err);

/* Tensors added so far, and the bytes of this rank's boxes. */
DCP_API size_t dcp_state_tensors(const dcp_state *state);
DCP_API uint64_t dcp_state_local_bytes(const dcp_state *state);

#ifdef __cplusplus
}
#endif
#endif
