/* Functions of the CPU backend, one file a group; kernels/kernels.h is their manual. */
#ifndef KERNELS_CPU_H
#define KERNELS_CPU_H

#include "kernels/kernels.h"

typedef struct cpu_bf16 cpu_bf16;

typedef struct cpu_state {
    char description[64];
    int product_failed;
    cpu_bf16 *bf16; /* of processors with such products; else NULL */
    float *wide;    /* operands of products in bf16, widened, where it is NULL */
    size_t wide_elems;
} cpu_state;

/* c = alpha op(a) op(b) + beta c, row-major with leading dimensions; beta 0 never reads c. */
typedef struct cpu_product {
    char transpose_a, transpose_b; /* 'N' or 'T' */
    size_t m, n, depth;
    float alpha, beta;
    size_t lda, ldb, ldc;
} cpu_product;

void cpu_sgemm(kernels *k, const cpu_product *p, const float *a, const float *b, float *c);
void cpu_describe_products(char *text, size_t size);
void cpu_product_failed(kernels *k);

/* NULL where the processor has no products of bf16 of its own, or memory is short. */
cpu_bf16 *cpu_bf16_open(void);
void cpu_bf16_close(cpu_bf16 *b);
/* matmul_bf16 by the processor's own products. Nonzero where it failed. */
int cpu_bf16_matmul(const cpu_bf16 *on, void *c, const uint16_t *a, const uint16_t *b, size_t m,
                    size_t n, size_t depth, unsigned flags);

void cpu_copy(kernels *k, float *y, const float *x, size_t n);
void cpu_zero(kernels *k, float *x, size_t n);
void cpu_scale(kernels *k, float *x, float a, size_t n);
void cpu_add(kernels *k, float *y, const float *x, size_t n);
void cpu_copy_rows(kernels *k, float *y, size_t y_stride, const float *x, size_t x_stride,
                   size_t rows, size_t dim, unsigned flags);
void cpu_sum_rows(kernels *k, float *sum, const float *x, size_t x_stride, size_t rows, size_t dim);
void cpu_matmul(kernels *k, float *c, const float *a, const float *b, size_t m, size_t n,
                size_t depth, unsigned flags);
void cpu_narrow_on(kernels *k, void *stream, uint16_t *y, const float *x, size_t n);
void cpu_narrow(kernels *k, uint16_t *y, const float *x, size_t n);
void cpu_widen(kernels *k, float *y, const uint16_t *x, size_t n);
void cpu_widen_upper(kernels *k, float *y, size_t n);
void cpu_matmul_bf16(kernels *k, void *c, const uint16_t *a, const uint16_t *b, size_t m, size_t n,
                     size_t depth, unsigned flags);
size_t cpu_matmul_bf16_keeps(const kernels *k, size_t m, size_t n, size_t depth);
void cpu_embedding_forward(kernels *k, float *out, const float *table, const int32_t *ids,
                           size_t rows, size_t dim);
void cpu_embedding_backward(kernels *k, float *dtable, const float *dout, const int32_t *ids,
                            size_t rows, size_t vocab, size_t dim);
void cpu_patches(kernels *k, float *out, const float *images, const kernels_patches *shape);
void cpu_rmsnorm_forward(kernels *k, void *out, kernels_type type, float *rstd, const float *x,
                         const float *weight, size_t rows, size_t dim, float eps);
void cpu_rmsnorm_backward(kernels *k, float *dx, uint16_t *rounded, float *dweight,
                          const float *dout, const float *x, const float *weight, const float *rstd,
                          size_t rows, size_t dim, unsigned flags);
void cpu_layernorm_forward(kernels *k, void *out, kernels_type type, float *mean, float *rstd,
                           const float *x, const float *weight, const float *bias, size_t rows,
                           size_t dim, float eps);
void cpu_layernorm_backward(kernels *k, float *dx, uint16_t *rounded, float *dweight, float *dbias,
                            const float *dout, const float *x, const float *weight,
                            const float *mean, const float *rstd, size_t rows, size_t dim,
                            unsigned flags);
void cpu_heads_forward(kernels *k, const kernels_heads *h, void *out, const void *x);
void cpu_heads_backward(kernels *k, const kernels_heads *h, void *dx, float *dweight,
                        const float *dout, const void *x);
size_t cpu_attention_scratch(const kernels_attention *shape);
void cpu_attention_forward(kernels *k, const kernels_attention *shape, void *out, float *lse,
                           const void *q, const void *key, const void *value, float *scratch);
void cpu_attention_backward(kernels *k, const kernels_attention *shape, float *dq, float *dkey,
                            void *dvalue, const void *dout, const void *out, const float *lse,
                            const void *q, const void *key, const void *value, float *scratch);
void cpu_activation_forward(kernels *k, void *out, const void *x, size_t n, kernels_activation f,
                            kernels_type type);
void cpu_activation_backward(kernels *k, void *out, void *dx, const void *dout, const void *x,
                             size_t n, kernels_activation f, kernels_type type);
void cpu_gated_forward(kernels *k, void *out, const void *gate, const void *up, size_t n,
                       kernels_activation f, kernels_type type);
void cpu_gated_backward(kernels *k, void *out, void *dgate, void *dup, const void *dout,
                        const void *gate, const void *up, size_t n, kernels_activation f,
                        kernels_type type);
void cpu_cross_entropy_forward(kernels *k, double *losses, float *lse, const void *logits,
                               kernels_type type, const int32_t *targets, size_t rows,
                               size_t vocab);
void cpu_cross_entropy_backward(kernels *k, void *dlogits, const void *logits, kernels_type type,
                                const float *lse, const int32_t *targets, size_t rows, size_t vocab,
                                float scale);
void cpu_update(kernels *k, const kernels_update *u, float *param, void *const *slots,
                const float *grad, size_t n);
void cpu_row_sumsq(kernels *k, double *out, const float *x, size_t rows, size_t dim);
void cpu_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n);

#endif
