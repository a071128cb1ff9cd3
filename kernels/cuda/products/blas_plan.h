/* Which algorithm of cuBLASLt multiplies matrices of a given shape. */
#pragma once

#include "cuda/products/blas.h"

enum {
    BLAS_PLANS = 128,    /* stored at once; a model needs some thirty */
    BLAS_ALIGNMENT = 16, /* bytes; no algorithm gains from more */
};

/* Everything on which the choice of an algorithm may depend. There is no padding, so equal shapes
 * are equal in every byte. */
typedef struct blas_shape {
    uint64_t m, n, depth; /* of the row-major product */
    uint32_t transpose_a, transpose_b;
    uint32_t operands, result; /* cudaDataType */
    uint32_t compute;          /* cublasComputeType_t */
    uint32_t epilogue;         /* cublasLtEpilogue_t */
    /* Bytes, at most BLAS_ALIGNMENT; 0 if absent. stored: where the product ends up, c or gelu. */
    uint32_t align_a, align_b, align_add, align_stored, align_bias, align_aux;
} blas_shape;

typedef struct blas_plan {
    blas_shape shape;
    cublasStatus_t status; /* CUBLAS_STATUS_NOT_SUPPORTED: there is no algorithm */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
} blas_plan;

/* The last BLAS_PLANS plans that were made. All zero at first. */
typedef struct blas_plans {
    blas_plan plans[BLAS_PLANS];
    size_t made; /* in total */
} blas_plans;

/* The plan of a shape, which is made unless it is stored; valid until the next call. A failure is
 * reported in its `status`. */
blas_plan *blas_plan_of(cuda_blas *blas, blas_plans *all, const blas_shape *shape);
void blas_plan_free_all(cuda_blas *blas, blas_plans *all);
