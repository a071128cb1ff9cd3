/* Matrix products through cuBLAS, which is column-major: a row-major c = a b is its c^T = b^T a^T,
 * so the operands change places and keep their transpositions. */
#include "cuda.h"

void cuda_matmul(kernels *k, float *c, const float *a, const float *b, size_t m, size_t n,
                 size_t depth, unsigned flags) {
    const float one = 1.0f, keep = flags & KERNELS_ADD ? 1.0f : 0.0f;
    int ta = (flags & KERNELS_TRANSPOSE_A) != 0, tb = (flags & KERNELS_TRANSPOSE_B) != 0;
    cuda_state *state = cuda_of(k);
    if (!m || !n) return;
    cublasStatus_t status = state->blas.sgemm(
        state->blas.handle, tb ? CUBLAS_OP_T : CUBLAS_OP_N, ta ? CUBLAS_OP_T : CUBLAS_OP_N,
        (int64_t)n, (int64_t)m, (int64_t)depth, &one, b, (int64_t)(tb ? depth : n), a,
        (int64_t)(ta ? m : depth), &keep, c, (int64_t)n);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    cuda_check(k, cudaMemsetAsync(c, 0xff, m * n * sizeof *c, state->stream)); /* NaN */
    if (!state->failure) state->failure = state->blas.status_string(status);
}
