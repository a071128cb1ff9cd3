/* Tensors, their element types, and boxes of them. */
#ifndef DCP_TENSOR_H
#define DCP_TENSOR_H

#include <stdint.h>

#include "dcp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DCP_MAX_DIMS 8
#define DCP_MAX_PATH 1024 /* longest tensor path, in bytes */

/* Element types, each with its name and its bytes per element. The names are those of safetensors,
 * which has no C128. C64 and C128 are complex numbers, with a real and an imaginary part of F32 or
 * F64. F8_E8M0 holds the powers of two from 2^-127 to 2^127 and a NaN, but no zero and no sign: the
 * type is for the scales of the OCP's MX formats. */
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
    DCP_DTYPE_LIST(DCP_DTYPE_ENUM) /* starting at 1 */
    DCP_DTYPE_COUNT                /* one more than the last type of these headers */
} dcp_dtype;
#undef DCP_DTYPE_ENUM

/* A global tensor. Its elements are in row-major order and little-endian. */
typedef struct dcp_tensor {
    const char *path; /* "/section/name", for example "/model/lm_head.weight" */
    dcp_dtype dtype;
    uint32_t ndim; /* 0: a scalar, one element */
    uint64_t shape[DCP_MAX_DIMS];
} dcp_tensor;

/* A box: the elements with start[d] <= index[d] < start[d] + count[d] in each dimension d; empty if
 * any count is 0. A scalar's box has start[0] = 0, and count[0] = 1 if it is held, 0 if not. */
typedef struct dcp_box {
    uint64_t start[DCP_MAX_DIMS];
    uint64_t count[DCP_MAX_DIMS];
} dcp_box;

/* Returns the type's name, such as "F32", in static storage; NULL for DCP_DTYPE_NONE and for values
 * that are not types. */
DCP_API const char *dcp_dtype_name(dcp_dtype dtype);
/* Returns the bytes per element; 0 for DCP_DTYPE_NONE and for values that are not types. */
DCP_API uint64_t dcp_dtype_bytes(dcp_dtype dtype);
/* Sets *out to the type of that name.
 * DCP_ERR_NOT_FOUND: there is none.
 * DCP_ERR_UNSUPPORTED: a type of safetensors that this library does not support: F8_E4M3FNUZ,
 * F8_E5M2FNUZ, and F4, F6_E2M3 and F6_E3M2, which are packed. */
DCP_API int dcp_dtype_parse(const char *name, dcp_dtype *out);

/* Converts `n` elements of type `from` in `src` to type `to`, and writes them to `dst`. Neither
 * needs to be aligned. They may overlap, provided that `dst` neither begins after `src` nor ends
 * after it. So `src` may lie at the end of the memory of `dst`, or both may begin at the same
 * address.
 *
 * These conversions exist:
 *   any type to itself, byte by byte
 *   floats to each other
 *   integers to integers and floats that hold every value of the type (the smallest such floats:
 *       F16 and BF16 for I8 and U8, F32 for I16 and U16, F64 for I32 and U32)
 *   types that convert to F32 also to C64, types that convert to F64 also to C128; the imaginary
 *       part is 0
 *   complex numbers to each other, part by part, and to nothing else
 *
 * Floats are rounded once, to nearest even, and keep their sign. NaN stays NaN. Values that are too
 * large become Inf. F8_E4M3 has no Inf: values that would round to more than 448 become NaN, as in
 * PyTorch. F8_E8M0 has no zero, sign or Inf: zero, negative values and Inf become NaN, as in
 * ml_dtypes (PyTorch makes zero 2^-127 and drops signs). Values halfway between two powers of two
 * become the larger one, as in both libraries. Positive values less than 2^-127 become 2^-127,
 * values between 2^-127 and 2^-126 become 2^-126, and 1.5 * 2^127 becomes NaN.
 * DCP_ERR_UNSUPPORTED: no such conversion, even if `n` is 0.
 * DCP_ERR_ARG: no such type; or NULL, unless `n` is 0. */
DCP_API int dcp_convert(dcp_dtype from, const void *src, dcp_dtype to, void *dst, uint64_t n);

/* Returns the size in bytes of the whole tensor, which must be one that libdcp accepted or
 * returned. */
DCP_API uint64_t dcp_tensor_bytes(const dcp_tensor *tensor);

/* Returns the box of the whole tensor. */
DCP_API dcp_box dcp_box_whole(const dcp_tensor *tensor);
/* Returns the box of `rank` if the tensor is cut on dimension 0 as FSDP2 and torch.chunk do it:
 * ceil(shape[0] / world) rows per rank; the last ranks may hold fewer rows or none. A scalar is on
 * rank 0 alone. The box is empty if the rank does not exist. */
DCP_API dcp_box dcp_box_chunk(const dcp_tensor *tensor, int rank, int world);
/* Returns the number of elements of a box of a tensor with `ndim` dimensions; UINT64_MAX if there
 * are that many or more. Here and below, `ndim` is at most DCP_MAX_DIMS. */
DCP_API uint64_t dcp_box_elems(const dcp_box *box, uint32_t ndim);
/* Sets *out to a part of a box, for work in bounded memory: to the longest box that begins at
 * element `first` of `box` (in row-major order), has at most `max_elems` elements (but at least 1),
 * and consists of elements that are consecutive in that order. Such a part has one index in each
 * dimension before some dimension d, a range in d, and all of `box` in the dimensions after d.
 * Returns the number of elements of *out; 0, with an empty *out, if the box has no element `first`.
 * A scalar's box has 1 dimension. */
DCP_API uint64_t dcp_box_slice(uint32_t ndim, const dcp_box *box, uint64_t first,
                               uint64_t max_elems, dcp_box *out);

#ifdef __cplusplus
}
#endif
#endif
