/* Tensors, their element types, and boxes of them. */
#ifndef DCP_TENSOR_H
#define DCP_TENSOR_H

#include <stdint.h>

#include "dcp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DCP_MAX_DIMS 8
#define DCP_MAX_PATH 1024 /* longest path of a tensor, in bytes */

/* Element types: name (safetensors' spelling; it has none of C128), bytes an element. C64 and C128
 * are complex numbers, a real and an imaginary part of F32 or F64. F8_E8M0 are powers of two from
 * 2^-127 to 2^127 and a NaN, without sign and zero: the scales of the OCP's MX formats. */
#define DCP_DTYPE_LIST(X)                                                                          \
    X(DCP_F64, "F64", 8)                                                                           \
    X(DCP_F32, "F32", 4)                                                                           \
    X(DCP_F16, "F16", 2)                                                                           \
    X(DCP_BF16, "BF16", 2)                                                                         \
    X(DCP_F8_E4M3, "F8_E4M3", 1)                                                                   \
    X(DCP_F8_E5M2, "F8_E5M2", 1)                                                                   \
    X(DCP_I64, "I64", 8)                                                                           \
    X(DCP_I32, "I32", 4)                                                                           \
    X(DCP_I16, "I16", 2)                                                                           \
    X(DCP_I8, "I8", 1)                                                                             \
    X(DCP_U64, "U64", 8)                                                                           \
    X(DCP_U32, "U32", 4)                                                                           \
    X(DCP_U16, "U16", 2)                                                                           \
    X(DCP_U8, "U8", 1)                                                                             \
    X(DCP_BOOL, "BOOL", 1)                                                                         \
    X(DCP_C64, "C64", 8)                                                                           \
    X(DCP_C128, "C128", 16)                                                                        \
    X(DCP_F8_E8M0, "F8_E8M0", 1)

#define DCP_DTYPE_ENUM(id, name, bytes) id,
typedef enum dcp_dtype {
    DCP_DTYPE_NONE,                /* 0, no type: a tensor whose dtype was not set is refused */
    DCP_DTYPE_LIST(DCP_DTYPE_ENUM) /* from 1 on */
    DCP_DTYPE_COUNT                /* one more than the last type of these headers */
} dcp_dtype;
#undef DCP_DTYPE_ENUM

/* A global tensor: row-major, little-endian, whatever box of it a rank holds. */
typedef struct dcp_tensor {
    const char *path; /* "/section/name", for example "/model/lm_head.weight" */
    dcp_dtype dtype;
    uint32_t ndim; /* 0: a scalar, one element */
    uint64_t shape[DCP_MAX_DIMS];
} dcp_tensor;

/* The elements start[d] <= index[d] < start[d] + count[d]; empty where any count is 0. A scalar's
 * box has start[0] = 0, and count[0] = 1 where it is held, 0 where it is not. */
typedef struct dcp_box {
    uint64_t start[DCP_MAX_DIMS];
    uint64_t count[DCP_MAX_DIMS];
} dcp_box;

/* "F32" and so on; NULL for DCP_DTYPE_NONE and what is no type. Static storage. */
DCP_API const char *dcp_dtype_name(dcp_dtype dtype);
/* Bytes an element; 0 for DCP_DTYPE_NONE and what is no type. */
DCP_API uint64_t dcp_dtype_bytes(dcp_dtype dtype);
/* The type of that name; DCP_ERR_NOT_FOUND where there is none. DCP_ERR_UNSUPPORTED: one of the
 * types of safetensors that this library leaves out: F8_E4M3FNUZ, F8_E5M2FNUZ, and F4, F6_E2M3 and
 * F6_E3M2, which are packed. */
DCP_API int dcp_dtype_parse(const char *name, dcp_dtype *out);

/* Writes n elements of `src` as type `to` into `dst`; neither has to be aligned. Possible are all
 * pairs of floats; integers to integers and floats that hold each value of the type (I8 and U8 to
 * F16, BF16; I16 and U16 to F32; I32 and U32 to F64); what may become F32 to C64, and F64 to C128,
 * with an imaginary part of 0; complex numbers to each other, part by part, and to nothing else;
 * and any type to itself, byte by byte.
 * Floats are rounded once, to nearest even, and keep their sign; NaN stays NaN; what is too large
 * becomes Inf. F8_E4M3 has no Inf: what would round to more than 448 becomes NaN, as in PyTorch.
 * F8_E8M0 has neither zero, sign nor Inf: these become NaN, as in ml_dtypes (PyTorch makes zero
 * 2^-127 and drops signs). Halves go to the larger power of two, as in both; what is less than
 * 2^-127 becomes that, what is between it and 2^-126 becomes 2^-126, and 1.5 * 2^127 NaN.
 * The memory may overlap where dst neither begins after src nor ends after it: so src may be the
 * end of dst's memory, or both begin at one place.
 * DCP_ERR_UNSUPPORTED: another pair, also where n is 0. DCP_ERR_ARG: no such type; NULL, but with
 * n = 0. */
DCP_API int dcp_convert(dcp_dtype from, const void *src, dcp_dtype to, void *dst, uint64_t n);

/* Bytes of the whole tensor. The tensor must be one that libdcp accepted or returned. */
DCP_API uint64_t dcp_tensor_bytes(const dcp_tensor *tensor);

/* The box of all of `tensor`. */
DCP_API dcp_box dcp_box_whole(const dcp_tensor *tensor);
/* Rank's box when `tensor` is cut on dimension 0 as FSDP2 and torch.chunk do it: ceil(shape[0] /
 * world) rows a rank; the last ranks may hold fewer or none. A scalar is on rank 0 alone. Empty
 * where there is no such rank. */
DCP_API dcp_box dcp_box_chunk(const dcp_tensor *tensor, int rank, int world);
/* Elements of a box of a tensor with `ndim` dimensions, of which here and below there are at most
 * DCP_MAX_DIMS; UINT64_MAX where they are so many or more. */
DCP_API uint64_t dcp_box_elems(const dcp_box *box, uint32_t ndim);
/* For work in bounded memory: the longest box that begins at element `first` of `box` (row-major),
 * holds at most `max_elems` (1 at least), and whose elements follow each other in that order: a run
 * that begins at a boundary of dimension d and stays within one index of those before. Returns the
 * elements of *out; 0, and an empty box, where the box has no element `first`. A scalar's box has 1
 * dimension. */
DCP_API uint64_t dcp_box_slice(uint32_t ndim, const dcp_box *box, uint64_t first,
                               uint64_t max_elems, dcp_box *out);

#ifdef __cplusplus
}
#endif
#endif
