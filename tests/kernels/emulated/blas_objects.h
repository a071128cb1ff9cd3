/* What the emulated cuBLASLt's descriptors hold. */
#ifndef EMULATED_BLAS_OBJECTS_H
#define EMULATED_BLAS_OBJECTS_H

#include <cublasLt.h>

struct emulated_product {
    cublasComputeType_t compute;
    int32_t transpose_a, transpose_b;
    uint32_t epilogue;
    const float *bias;
    float *aux;
    int64_t aux_ld;
};

struct emulated_matrix { /* column-major */
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

struct emulated_wish {
    uint64_t workspace;
    uint32_t reduction, align_a, align_b, align_c, align_d;
};

#endif
