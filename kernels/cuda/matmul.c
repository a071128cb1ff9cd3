/* Matrix products through cuBLAS, which is column-major: a row-major c = a b is its c^T = b^T a^T,
 * so the operands change places and keep their transpositions. */
#include "cuda.h"

/* A product that failed leaves NaN. */
static void check(kernels *k, cublasStatus_t status, void *c, size_t bytes) {
    cuda_state *state = cuda_of(k);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    cuda_check(k, cudaMemsetAsync(c, 0xff, bytes, state->stream));
    if (!state->failure) state->failure = state->blas.status_string(status);
}

void cuda_matmul(kernels *k, float *c, const float *a, const float *b, size_t m, size_t n,
                 size_t depth, unsigned flags) {
    const float one = 1.0f, keep = flags & KERNELS_ADD ? 1.0f : 0.0f;
    int ta = (flags & KERNELS_TRANSPOSE_A) != 0, tb = (flags & KERNELS_TRANSPOSE_B) != 0;
    cuda_state *state = cuda_of(k);
    if (!m || !n) return;
    check(k,
          state->blas.sgemm(state->blas.handle, tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                            ta ? CUBLAS_OP_T : CUBLAS_OP_N, (int64_t)n, (int64_t)m, (int64_t)depth,
                            &one, b, (int64_t)(tb ? depth : n), a, (int64_t)(ta ? m : depth), &keep,
                            c, (int64_t)n),
          c, m * n * sizeof *c);
}

void cuda_matmul_bf16(kernels *k, void *c, const uint16_t *a, const uint16_t *b, size_t m, size_t n,
                      size_t depth, unsigned flags) {
    const float one = 1.0f, keep = flags & KERNELS_ADD ? 1.0f : 0.0f;
    int ta = (flags & KERNELS_TRANSPOSE_A) != 0, tb = (flags & KERNELS_TRANSPOSE_B) != 0;
    int narrow = (flags & KERNELS_NARROW) != 0;
    cuda_blas *blas = &cuda_of(k)->blas;
    if (!m || !n) return;
    /* Sums in fp32, also where cuBLAS splits the depth. */
    blas->set_math_mode(blas->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    check(k,
          blas->gemm(blas->handle, tb ? CUBLAS_OP_T : CUBLAS_OP_N, ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                     (int64_t)n, (int64_t)m, (int64_t)depth, &one, b, CUDA_R_16BF,
                     (int64_t)(tb ? depth : n), a, CUDA_R_16BF, (int64_t)(ta ? m : depth), &keep, c,
                     narrow ? CUDA_R_16BF : CUDA_R_32F, (int64_t)n, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT),
          c, m * n * (narrow ? sizeof *a : sizeof(float)));
    blas->set_math_mode(blas->handle, cuda_of(k)->fp32);
}
