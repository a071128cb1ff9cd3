/* Products for which cuBLASLt has no algorithm. */
#pragma once

#include "cuda/common/cuda_state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c[m,n] = a[m,depth] b[depth,n], row-major, with the flags of matmul and matmul_bf16, for any
 * shape and alignment. Each sum runs over the depth in order, in fp32. */
void cuda_product_simple(kernels *k, void *c, const void *a, const void *b, size_t m, size_t n,
                         size_t depth, kernels_type operands, unsigned flags);

#ifdef __cplusplus
}
#endif
