/* cuBLASLt on the host, its descriptors: see cublasLt.h. */
#include <stdlib.h>
#include <string.h>

#include "blas_objects.h"

size_t cublasLtGetVersion(void) { return 0; }

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "refused by the emulated cuBLASLt";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = malloc(1);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* What an object begins as. */
static cublasStatus_t create(void *out, const void *begin, size_t bytes) {
    void *made = malloc(bytes);
    if (!made) return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(made, begin, bytes);
    memcpy(out, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t wanted, const void *value, size_t bytes) {
    if (bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType scale) {
    const struct emulated_product p = {.compute = compute, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return scale == CUDA_R_32F ? create(out, &p, sizeof p) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    free(product);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&product->transpose_a, sizeof(int32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&product->transpose_b, sizeof(int32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&product->epilogue, sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&product->bias, sizeof(void *), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&product->aux, sizeof(void *), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&product->aux_ld, sizeof(int64_t), value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    const struct emulated_matrix m = {.type = type, .rows = rows, .cols = cols, .ld = ld};
    return create(out, &m, sizeof m);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
    free(matrix);
    return CUBLAS_STATUS_SUCCESS;
}

/* The library's own defaults. */
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    const struct emulated_wish w = {
        .reduction = 7, .align_a = 256, .align_b = 256, .align_c = 256, .align_d = 256};
    return create(out, &w, sizeof w);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish) {
    free(wish);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&wish->workspace, sizeof(uint64_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&wish->reduction, sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(&wish->align_a, sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(&wish->align_b, sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(&wish->align_c, sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&wish->align_d, sizeof(uint32_t), value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
