/* Definitions that the files of the CUDA backend share: its state and, for each group of functions
 * of kernels/kernels.h, the function that sets their pointers, such as cuda_norm_fill in
 * layers/norm.cu. All work of a backend runs in order on its one stream, except the work
 * of narrow_on. */
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_WORKSPACE = 32 << 20 }; /* bytes; the size that cuBLAS requests on Hopper */

typedef struct cuda_state {
    int device;
    cudaStream_t stream;
    struct cuda_blas *blas;   /* products/blas.h */
    struct blas_plans *plans; /* products/blas_plan.h */
    struct cuda_memory *memory;
    struct cuda_spans *spans;
    void *workspace;     /* for any kernel; always the same memory, so that products have the same
                          * bits */
    int major;           /* of the device's compute capability; 9 is Hopper */
    size_t most_shared;  /* the bytes of shared memory that a block can request */
    const char *failure; /* the error of the first call that failed */
    char product_failure[240];
    char bus[32]; /* "0000:3b:00.0" */
    char description[320];
} cuda_state;

static inline cuda_state *cuda_of(kernels *k) { return (cuda_state *)k->state; }

/* Stores the failure if it is the first one. */
static inline void cuda_check(kernels *k, cudaError_t status) {
    cuda_state *state = cuda_of(k);
    if (status != cudaSuccess && !state->failure) state->failure = cudaGetErrorString(status);
}

/* In memory.c and spans.c. The open functions return NULL if out of memory; the close functions
 * ignore NULL. */
struct cuda_memory *cuda_memory_open(void);
void cuda_memory_close(struct cuda_memory *m);
struct cuda_spans *cuda_spans_open(void);
void cuda_spans_close(struct cuda_spans *s);

void cuda_activation_fill(kernels *k);
void cuda_attention_fill(kernels *k);
void cuda_elementwise_fill(kernels *k);
void cuda_embedding_fill(kernels *k);
void cuda_heads_fill(kernels *k);
void cuda_loss_fill(kernels *k);
void cuda_matmul_fill(kernels *k);
void cuda_memory_fill(kernels *k);
void cuda_norm_fill(kernels *k);
void cuda_optimizer_fill(kernels *k);
void cuda_rows_fill(kernels *k);
void cuda_spans_fill(kernels *k);
void cuda_sums_fill(kernels *k);

#ifdef __cplusplus
}
#endif
