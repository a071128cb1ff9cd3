/* Matrix products and linear layers, by the algorithms that blas_plan.c chooses for their shapes. A
 * shape without an algorithm is computed by a simple kernel. */
#include <stdbool.h>
#include <stdio.h>

#include "cuda/common/cuda_state.h"
#include "cuda/products/blas_plan.h"
#include "cuda/products/simple.h"

/* c[m,n] = a[m,depth] b[depth,n] + add[m,n] + bias[n], row-major, in the backend's memory. */
typedef struct blas_product {
    void *c; /* fp32, or bf16 with KERNELS_NARROW */
    const void *a, *b;
    const void *add;   /* of c's type; may be c; NULL: nothing is added */
    const float *bias; /* added to each row; NULL: none */
    float *gelu;       /* [m,n] = KERNELS_GELU_TANH of c; NULL: not computed */
    size_t m, n, depth;
    kernels_type operands; /* the type of a and b */
    unsigned flags;        /* KERNELS_TRANSPOSE_A etc.; `add` replaces KERNELS_ADD */
} blas_product;

/* Returns the largest power of two that divides an address, at most BLAS_ALIGNMENT; 0 for NULL. */
static uint32_t alignment(const void *p) {
    const uintptr_t at = (uintptr_t)p | (p ? BLAS_ALIGNMENT : 0);
    return (uint32_t)(at & (~at + 1));
}

/* "Pedantic" excludes tf32 and emulation, whatever the environment requests from cuBLAS. */
static cublasComputeType_t compute_type(const cuda_blas *blas, kernels_type operands) {
    if (operands == KERNELS_BF16) return CUBLAS_COMPUTE_32F;
    return blas->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F_PEDANTIC;
}

/* With a GELU, cuBLASLt stores the activation in place of the product, and the product as the
 * auxiliary matrix. */
static uint32_t epilogue_of(const blas_product *p) {
    if (p->gelu) return p->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static blas_shape blas_shape_of(const cuda_blas *blas, const blas_product *p) {
    return (blas_shape){.m = p->m,
                        .n = p->n,
                        .depth = p->depth,
                        .transpose_a = (p->flags & KERNELS_TRANSPOSE_A) != 0,
                        .transpose_b = (p->flags & KERNELS_TRANSPOSE_B) != 0,
                        .operands = p->operands == KERNELS_BF16 ? CUDA_R_16BF : CUDA_R_32F,
                        .result = p->flags & KERNELS_NARROW ? CUDA_R_16BF : CUDA_R_32F,
                        .compute = compute_type(blas, p->operands),
                        .epilogue = epilogue_of(p),
                        .align_a = alignment(p->a),
                        .align_b = alignment(p->b),
                        .align_add = alignment(p->add),
                        .align_stored = alignment(p->gelu ? p->gelu : p->c),
                        .align_bias = alignment(p->bias),
                        .align_aux = p->gelu ? alignment(p->c) : 0};
}

static blas_plan *plan_of(kernels *k, const blas_product *p) {
    cuda_blas *blas = cuda_of(k)->blas;
    const blas_shape shape = blas_shape_of(blas, p);
    return blas_plan_of(blas, cuda_of(k)->plans, &shape);
}

static cublasStatus_t try_product(kernels *k, const blas_product *p) {
    const float one = 1.0f, keep = p->add ? 1.0f : 0.0f;
    const blas_plan *plan = plan_of(k, p);
    const cuda_blas *blas = cuda_of(k)->blas;
    void *stored = p->gelu ? p->gelu : p->c;
    cublasStatus_t status = plan->status;
    if (status == CUBLAS_STATUS_SUCCESS && p->bias)
        status = blas->product_set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias,
                                   sizeof p->bias);
    if (status == CUBLAS_STATUS_SUCCESS && p->gelu)
        status = blas->product_set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->c,
                                   sizeof p->c);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return blas->multiply(blas->handle, plan->product, &one, p->b, plan->b, p->a, plan->a, &keep,
                          p->add ? p->add : stored, plan->c, stored, plan->c, &plan->algorithm,
                          cuda_of(k)->workspace, CUDA_WORKSPACE, cuda_of(k)->stream);
}

static void poison(kernels *k, void *c, size_t bytes) {
    cuda_check(k, cudaMemsetAsync(c, 0xff, bytes, cuda_of(k)->stream));
}

static void note_failure(cuda_state *state, const blas_product *p, cublasStatus_t status) {
    const blas_shape s = blas_shape_of(state->blas, p);
    if (state->failure) return;
    snprintf(
        state->product_failure, sizeof state->product_failure,
        "cuBLASLt: %s: product of [%llu,%llu] and [%llu,%llu]%s%s; operands in %s; epilogue %u; "
        "alignments %u, %u, %u and %u",
        state->blas->status_string(status), (unsigned long long)s.m, (unsigned long long)s.depth,
        (unsigned long long)s.depth, (unsigned long long)s.n,
        s.transpose_a ? ", the first transposed" : "",
        s.transpose_b ? ", the second transposed" : "",
        p->operands == KERNELS_BF16 ? "bf16" : "fp32", s.epilogue, s.align_a, s.align_b,
        s.align_add, s.align_stored);
    state->failure = state->product_failure;
}

/* Fills the output of a failed product with NaN. */
static void fail_product(kernels *k, const blas_product *p, cublasStatus_t status) {
    cuda_state *state = cuda_of(k);
    poison(k, p->c, p->m * p->n * (p->flags & KERNELS_NARROW ? sizeof(uint16_t) : sizeof(float)));
    if (p->gelu) poison(k, p->gelu, p->m * p->n * sizeof *p->gelu);
    note_failure(state, p, status);
}

/* Runs the product. Returns true if cuBLASLt refused it, that is, if the status is NOT_SUPPORTED or
 * INVALID_VALUE. In this case nothing was computed, and cuBLASLt is not tried again for the shape.
 * After any other failure, sync reports the failure. */
static bool is_refused(kernels *k, const blas_product *p) {
    if (!p->m || !p->n) return false;
    const cublasStatus_t status = try_product(k, p);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
        plan_of(k, p)->status = CUBLAS_STATUS_NOT_SUPPORTED;
        return true;
    }
    if (status != CUBLAS_STATUS_SUCCESS) fail_product(k, p, status);
    return false;
}

/* c = a b, or c += a b, without an epilogue. */
static void multiply_plain(kernels *k, void *c, const void *a, const void *b, size_t m, size_t n,
                           size_t depth, kernels_type operands, unsigned flags) {
    const blas_product p = {.c = c,
                            .a = a,
                            .b = b,
                            .add = flags & KERNELS_ADD ? c : NULL,
                            .m = m,
                            .n = n,
                            .depth = depth,
                            .operands = operands,
                            .flags = flags};
    if (is_refused(k, &p)) cuda_product_simple(k, c, a, b, m, n, depth, operands, flags);
}

static void cuda_matmul(kernels *k, float *c, const float *a, const float *b, size_t m, size_t n,
                        size_t depth, unsigned flags) {
    multiply_plain(k, c, a, b, m, n, depth, KERNELS_F32, flags & ~(unsigned)KERNELS_NARROW);
}

static void cuda_matmul_bf16(kernels *k, void *c, const uint16_t *a, const uint16_t *b, size_t m,
                             size_t n, size_t depth, unsigned flags) {
    multiply_plain(k, c, a, b, m, n, depth, KERNELS_BF16, flags);
}

/* Returns true if cuBLASLt may compute the GELU in the product's epilogue. This requires that the
 * number of elements of a row is a multiple of 8. On GPUs before Hopper, the epilogue is reported
 * to be slower than single steps. The precision of the epilogue's tanh is not documented, so only
 * products of bf16 use it. A product with `add` does not use it: `add` may be y itself, and one
 * call would then both read y and write it as the auxiliary matrix. Whether this works is not
 * documented. */
static bool may_fuse_gelu(kernels *k, const kernels_linear *l) {
    return l->activated && !l->add && l->f == KERNELS_GELU_TANH && l->operands == KERNELS_BF16 &&
           l->out % 8 == 0 && cuda_of(k)->major >= 9;
}

/* Computes everything in one call if cuBLASLt supports that for the shape. Otherwise computes
 * everything except the activation in one call, and then the activation. If cuBLASLt does not
 * support that call either, computes everything, including the activation, in single steps. The
 * choice depends only on the shape, so all ranks make the same choice. */
static void cuda_linear(kernels *k, float *y, const kernels_linear *l) {
    blas_product p = {.c = y,
                      .a = l->x,
                      .b = l->weight,
                      .add = l->add,
                      .bias = l->bias,
                      .gelu = may_fuse_gelu(k, l) ? l->activated : NULL,
                      .m = l->rows,
                      .n = l->out,
                      .depth = l->in,
                      .operands = l->operands,
                      .flags = l->flags};
    if (p.gelu && !is_refused(k, &p)) return;
    p.gelu = NULL;
    if (is_refused(k, &p))
        kernels_linear_unfused(k, y, l);
    else if (l->activated)
        k->activation_forward(k, l->activated, y, l->rows * l->out, l->f, KERNELS_F32);
}

void cuda_matmul_fill(kernels *k) {
    k->matmul = cuda_matmul;
    k->matmul_bf16 = cuda_matmul_bf16;
    k->linear = cuda_linear;
}
