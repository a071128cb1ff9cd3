/* Loads cuBLAS: the version that was compiled against, from the usual places or else from where it
 * was found then. */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

int cuda_blas_load(cuda_blas *blas) {
    blas->library = dlopen("libcublas.so." TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    if (!blas->library) blas->library = dlopen(CUBLAS_PATH, RTLD_NOW | RTLD_LOCAL);
    if (!blas->library) return 1;
    const struct {
        const char *name;
        void *to; /* a pointer to a function */
    } list[] = {
        {"cublasCreate_v2", &blas->create},
        {"cublasDestroy_v2", &blas->destroy},
        {"cublasGetVersion_v2", &blas->version},
        {"cublasSetStream_v2", &blas->set_stream},
        {"cublasSetWorkspace_v2", &blas->set_workspace},
        {"cublasSetMathMode", &blas->set_math_mode},
        {"cublasSgemm_v2_64", &blas->sgemm},
        {"cublasGemmEx_64", &blas->gemm},
        {"cublasGetStatusString", &blas->status_string},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        void *found = dlsym(blas->library, list[i].name);
        if (!found) return 1;
        memcpy(list[i].to, &found, sizeof found);
    }
    return 0;
}

/* The library stays for good: threads and state of CUDA's may still be in it. */
void cuda_blas_unload(cuda_blas *blas) {
    if (blas->handle) blas->destroy(blas->handle);
}
