/* cuBLAS on the host: plain loops over column-major matrices. */
#include <string.h>

#include "cuda.h"

static cublasMath_t mode;

static float at(const void *x, int64_t i, cudaDataType type) {
    uint32_t bits;
    float value;
    if (type == CUDA_R_32F) {
        memcpy(&bits, (const float *)x + i, sizeof bits);
        if (mode == CUBLAS_TF32_TENSOR_OP_MATH) bits &= 0xffffe000;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(void *x, int64_t i, cudaDataType type, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (type == CUDA_R_32F)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int64_t m, int64_t n, int64_t k,
                           const void *alpha, const void *a, cudaDataType a_type, int64_t lda,
                           const void *b, cudaDataType b_type, int64_t ldb, const void *beta,
                           void *c, cudaDataType c_type, int64_t ldc, cublasComputeType_t compute,
                           cublasGemmAlgo_t algorithm) {
    const float keep = *(const float *)beta;
    (void)handle, (void)compute, (void)algorithm;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            float sum = 0.0f;
            for (int64_t d = 0; d < k; d++)
                sum += at(a, transa ? i * lda + d : d * lda + i, a_type) *
                       at(b, transb ? d * ldb + j : j * ldb + d, b_type);
            sum *= *(const float *)alpha;
            put(c, j * ldc + i, c_type,
                keep == 0.0f ? sum : sum + keep * at(c, j * ldc + i, c_type));
        }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t sgemm(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int64_t m, int64_t n, int64_t k,
                            const float *alpha, const float *a, int64_t lda, const float *b,
                            int64_t ldb, const float *beta, float *c, int64_t ldc) {
    return gemm(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb,
                beta, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

static cublasStatus_t create(cublasHandle_t *handle) {
    *handle = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t version(cublasHandle_t handle, int *out) {
    (void)handle;
    *out = 0;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_stream(cublasHandle_t handle, cudaStream_t stream) {
    (void)handle, (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_workspace(cublasHandle_t handle, void *workspace, size_t bytes) {
    (void)handle, (void)workspace, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_math_mode(cublasHandle_t handle, cublasMath_t wanted) {
    (void)handle;
    mode = wanted;
    return CUBLAS_STATUS_SUCCESS;
}

static const char *status_string(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "refused by the emulated cuBLAS";
}

int cuda_blas_load(cuda_blas *blas) {
    blas->create = create;
    blas->version = version;
    blas->set_stream = set_stream;
    blas->set_workspace = set_workspace;
    blas->set_math_mode = set_math_mode;
    blas->sgemm = sgemm;
    blas->gemm = gemm;
    blas->status_string = status_string;
    return 0;
}

void cuda_blas_unload(cuda_blas *blas) { (void)blas; }
