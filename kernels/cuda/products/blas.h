/* The functions of cuBLASLt. */
#pragma once

#include <cublasLt.h>

/* cuBLASLt, which is loaded when the backend opens. If the program loaded it at its start, runs on
 * the CPU would need 150 MB more memory and half a second more time. */
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

    int tf32; /* products of fp32 may round their operands to tf32 */
} cuda_blas;

/* Returns nonzero if the library or one of its functions is missing. */
int cuda_blas_load(cuda_blas *blas);
void cuda_blas_unload(cuda_blas *blas);
