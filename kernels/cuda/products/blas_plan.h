/* Chooses the algorithm of cuBLASLt for products of a given shape. */
#pragma once

#include "cuda/products/blas.h"

enum {
    BLAS_PLANS = 128,    /* the most plans that are stored; a model needs about thirty */
    BLAS_ALIGNMENT = 16, /* bytes; no algorithm is faster with more */
};

/* Everything on which the choice of an algorithm may depend. The struct has no padding, so equal
 * shapes are equal in every byte. */
typedef struct blas_shape {
    uint64_t m, n, depth; /* of the row-major product */
    uint32_t transpose_a, transpose_b;
    uint32_t operands, result; /* cudaDataType */
    uint32_t compute;          /* cublasComputeType_t */
    uint32_t epilogue;         /* cublasLtEpilogue_t */
    /* Bytes, at most BLAS_ALIGNMENT; 0 if the array is absent. align_stored: of the matrix that
     * cuBLASLt stores as the result, c or gelu. */
    uint32_t align_a, align_b, align_add, align_stored, align_bias, align_aux;
} blas_shape;

typedef struct blas_plan {
    blas_shape shape;
    cublasStatus_t status; /* CUBLAS_STATUS_NOT_SUPPORTED: cuBLASLt has no algorithm */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
} blas_plan;

/* The last BLAS_PLANS plans that were made. All zero at first. */
typedef struct blas_plans {
    blas_plan plans[BLAS_PLANS];
    size_t made; /* the number of plans made so far */
} blas_plans;

/* Returns the plan of a shape, and makes it first if it is not stored. Valid until the next call.
 * plan->status reports a failure. */
blas_plan *blas_plan_of(cuda_blas *blas, blas_plans *all, const blas_shape *shape);
void blas_plan_free_all(cuda_blas *blas, blas_plans *all);
