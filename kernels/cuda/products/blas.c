/* Loads cuBLASLt, in the major version against which this file was compiled, from the directories
 * that the dynamic linker searches, or else from the path at which the build found it. */
#include <dlfcn.h>
#include <string.h>

#include "cuda/products/blas.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

int cuda_blas_load(cuda_blas *blas) {
    blas->library = dlopen("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    if (!blas->library) blas->library = dlopen(CUBLASLT_PATH, RTLD_NOW | RTLD_LOCAL);
    if (!blas->library) return 1;
    const struct {
        const char *name;
        void *to; /* a pointer to the function's pointer */
    } list[] = {
        {"cublasLtCreate", &blas->create},
        {"cublasLtDestroy", &blas->destroy},
        {"cublasLtGetVersion", &blas->version},
        {"cublasLtGetStatusString", &blas->status_string},
        {"cublasLtMatmulDescCreate", &blas->product_create},
        {"cublasLtMatmulDescDestroy", &blas->product_destroy},
        {"cublasLtMatmulDescSetAttribute", &blas->product_set},
        {"cublasLtMatrixLayoutCreate", &blas->layout_create},
        {"cublasLtMatrixLayoutDestroy", &blas->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &blas->wish_create},
        {"cublasLtMatmulPreferenceDestroy", &blas->wish_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &blas->wish_set},
        {"cublasLtMatmulAlgoGetHeuristic", &blas->choose},
        {"cublasLtMatmul", &blas->multiply},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        void *found = dlsym(blas->library, list[i].name);
        if (!found) return 1;
        memcpy(list[i].to, &found, sizeof found);
    }
    return 0;
}

/* Does not unload the library itself, because threads and state of CUDA may still use it. */
void cuda_blas_unload(cuda_blas *blas) {
    if (!blas->handle) return;
    blas->destroy(blas->handle);
}
