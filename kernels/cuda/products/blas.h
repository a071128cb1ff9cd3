/* Matrix products by cuBLASLt. A backend's own; kernels/cuda only. */
#ifndef KERNELS_CUDA_BLAS_H
#define KERNELS_CUDA_BLAS_H

#include <cublasLt.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    BLAS_PLANS = 128,          /* that are kept; a model has some thirty */
    BLAS_WORKSPACE = 32 << 20, /* bytes; what cuBLAS asks for on Hopper */
    BLAS_ALIGNMENT = 16,       /* bytes; no algorithm gains by more */
};

/* c[m,n] = a[m,depth] b[depth,n] + add[m,n] + bias[n], row-major, in the backend's memory. */
typedef struct blas_product {
    void *c; /* fp32, or bf16 with KERNELS_NARROW */
    const void *a, *b;
    const void *add;   /* of c's type, may be c; NULL: nothing is added */
    const float *bias; /* added to each row; NULL: none */
    float *gelu;       /* [m,n] = the tanh approximation of c's GELU; NULL: none */
    size_t m, n, depth;
    kernels_type operands; /* of a and b */
    unsigned flags;        /* KERNELS_TRANSPOSE_A and so on; `add` says what KERNELS_ADD would */
} blas_product;

/* All that the choice of an algorithm may depend on. Equal shapes are equal in every byte: there is
 * no padding. */
typedef struct blas_shape {
    uint64_t m, n, depth; /* of the row-major product */
    uint32_t transpose_a, transpose_b;
    uint32_t operands, result; /* cudaDataType */
    uint32_t compute;          /* cublasComputeType_t */
    uint32_t epilogue;         /* cublasLtEpilogue_t */
    /* Bytes, at most BLAS_ALIGNMENT; 0: not there. stored: where the product ends, c or gelu. */
    uint32_t align_a, align_b, align_add, align_stored, align_bias, align_aux;
} blas_shape;

typedef struct blas_plan {
    blas_shape shape;
    cublasStatus_t status; /* CUBLAS_STATUS_NOT_SUPPORTED: there is no algorithm */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
} blas_plan;

/* cuBLASLt, loaded as the backend opens and not with the program: it costs 150 MB of memory and
 * half a second, which runs on the CPU should not pay. */
typedef struct cuda_blas {
    void *library;
    cublasLtHandle_t handle;
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtGetVersion) *version;
    __typeof__(cublasLtGetStatusString) *status_string;
    __typeof__(cublasLtMatmulDescCreate) *product_create;
    __typeof__(cublasLtMatmulDescDestroy) *product_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *product_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *wish_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *wish_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *wish_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *choose;
    __typeof__(cublasLtMatmul) *multiply;

    void *workspace; /* fixed, so that its bits do not change from call to call */
    int tf32;        /* products of fp32 may round their operands */
    blas_plan plans[BLAS_PLANS];
    size_t n_plans; /* that were ever made; the last BLAS_PLANS of them are kept */
} cuda_blas;

/* Nonzero where the library or one of its functions is missing. */
int cuda_blas_load(cuda_blas *blas);
void cuda_blas_unload(cuda_blas *blas);

/* The plan of a shape, made where it is not kept; valid until the next call. Its status is the
 * plan's. */
blas_plan *blas_plan_of(cuda_blas *blas, const blas_shape *shape);
void blas_plans_free(cuda_blas *blas);

#ifdef __cplusplus
}
#endif
#endif
