/* Functions of the CUDA backend, one file a group; kernels/kernels.h is their manual. Device code
 * is in the .cu files, which export extern "C" launchers; all work of a backend runs in order on
 * its one stream. */
#ifndef KERNELS_CUDA_H
#define KERNELS_CUDA_H

#include <cuda_runtime_api.h>

#include "cuda/products/blas.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_state {
    int device;
    cudaStream_t stream;
    cuda_blas blas;
    int major;           /* of its architecture: 9 is Hopper */
    size_t most_shared;  /* bytes of shared memory that a block can ask for */
    const char *failure; /* of the first call that failed */
    char product_failure[240];
    char bus[32]; /* "0000:3b:00.0" */
    char description[320];
} cuda_state;

static inline cuda_state *cuda_of(kernels *k) { return (cuda_state *)k->state; }

/* Keeps the first failure. */
void cuda_check(kernels *k, cudaError_t status);

void cuda_copy(kernels *k, float *y, const float *x, size_t n);
void cuda_zero(kernels *k, float *x, size_t n);
void cuda_scale(kernels *k, float *x, float a, size_t n);
void cuda_add(kernels *k, float *y, const float *x, size_t n);
void cuda_copy_rows(kernels *k, float *y, size_t y_stride, const float *x, size_t x_stride,
                    size_t rows, size_t dim, unsigned flags);
void cuda_sum_rows(kernels *k, float *sum, const float *x, size_t x_stride, size_t rows,
                   size_t dim);
void cuda_matmul(kernels *k, float *c, const float *a, const float *b, size_t m, size_t n,
                 size_t depth, unsigned flags);
void cuda_narrow(kernels *k, uint16_t *y, const float *x, size_t n);
void cuda_narrow_on(kernels *k, void *stream, uint16_t *y, const float *x, size_t n);
void cuda_widen(kernels *k, float *y, const uint16_t *x, size_t n);
void cuda_widen_upper(kernels *k, float *y, size_t n);
void cuda_matmul_bf16(kernels *k, void *c, const uint16_t *a, const uint16_t *b, size_t m, size_t n,
                      size_t depth, unsigned flags);
void cuda_linear(kernels *k, float *y, const kernels_linear *l);
void cuda_embedding_forward(kernels *k, float *out, const float *table, const int32_t *ids,
                            size_t rows, size_t dim);
void cuda_embedding_backward(kernels *k, float *dtable, const float *dout, const int32_t *ids,
                             size_t rows, size_t vocab, size_t dim);
void cuda_patches(kernels *k, float *out, const float *images, const kernels_patches *shape);
void cuda_rmsnorm_forward(kernels *k, void *out, kernels_type type, float *rstd, const float *x,
                          const float *weight, size_t rows, size_t dim, float eps);
void cuda_rmsnorm_backward(kernels *k, float *dx, uint16_t *rounded, float *dweight,
                           const float *dout, const float *x, const float *weight,
                           const float *rstd, size_t rows, size_t dim, unsigned flags);
void cuda_layernorm_forward(kernels *k, void *out, kernels_type type, float *mean, float *rstd,
                            const float *x, const float *weight, const float *bias, size_t rows,
                            size_t dim, float eps);
void cuda_layernorm_backward(kernels *k, float *dx, uint16_t *rounded, float *dweight, float *dbias,
                             const float *dout, const float *x, const float *weight,
                             const float *mean, const float *rstd, size_t rows, size_t dim,
                             unsigned flags);
void cuda_heads_forward(kernels *k, const kernels_heads *h, void *out, const void *x);
void cuda_heads_backward(kernels *k, const kernels_heads *h, void *dx, float *dweight,
                         const float *dout, const void *x);
size_t cuda_attention_scratch(const kernels_attention *shape);
void cuda_attention_forward(kernels *k, const kernels_attention *shape, void *out, float *lse,
                            const void *q, const void *key, const void *value, float *scratch);
void cuda_attention_backward(kernels *k, const kernels_attention *shape, float *dq, float *dkey,
                             void *dvalue, const void *dout, const void *out, const float *lse,
                             const void *q, const void *key, const void *value, float *scratch);
void cuda_activation_forward(kernels *k, void *out, const void *x, size_t n, kernels_activation f,
                             kernels_type type);
void cuda_activation_backward(kernels *k, void *out, void *dx, const void *dout, const void *x,
                              size_t n, kernels_activation f, kernels_type type);
void cuda_gated_forward(kernels *k, void *out, const void *gate, const void *up, size_t n,
                        kernels_activation f, kernels_type type);
void cuda_gated_backward(kernels *k, void *out, void *dgate, void *dup, const void *dout,
                         const void *gate, const void *up, size_t n, kernels_activation f,
                         kernels_type type);
void cuda_cross_entropy_forward(kernels *k, double *losses, float *lse, const void *logits,
                                kernels_type type, const int32_t *targets, size_t rows,
                                size_t vocab);
void cuda_cross_entropy_backward(kernels *k, void *dlogits, const void *logits, kernels_type type,
                                 const float *lse, const int32_t *targets, size_t rows,
                                 size_t vocab, float scale);
void cuda_update(kernels *k, const kernels_update *u, float *param, void *const *slots,
                 const float *grad, size_t n);
void cuda_row_sumsq(kernels *k, double *out, const float *x, size_t rows, size_t dim);
void cuda_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n);

#ifdef __cplusplus
}
#endif
#endif
