/* The CUDA backend: one device, one stream, and products by cuBLASLt, in fp32, bf16 or, if
 * allow_tf32 permits, tf32. The device becomes the current one of the thread that opens the
 * backend. The order of the sums in the backend's kernels is fixed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/common/cuda_state.h"
#include "cuda/products/blas_plan.h"

/* The stream's priority; a lower number is a higher priority. The default of streams is 0, the
 * lowest priority. Work that runs beside the training, such as checksums of saved data, should use
 * priority 0. NCCL's transfers have the highest priority. */
enum { PRIORITY = -1 };

static int no_device(cudaError_t why) {
    kernels_set_why(cudaGetErrorString(why));
    return KERNELS_NO_DEVICE;
}

static int describe_device(cuda_state *state) {
    struct cudaDeviceProp device;
    cudaError_t code = cudaGetDeviceProperties(&device, state->device);
    if (!code) code = cudaDeviceGetPCIBusId(state->bus, sizeof state->bus, state->device);
    if (code) return no_device(code);
    state->major = device.major;
    state->most_shared = device.sharedMemPerBlockOptin;
    snprintf(state->description, sizeof state->description, "cuBLASLt %zu sm_%d%d %s",
             state->blas->version(), device.major, device.minor, device.name);
    return KERNELS_OK;
}

static void release(cuda_state *state) {
    if (state->blas && state->plans) blas_plan_free_all(state->blas, state->plans);
    if (state->blas) cuda_blas_unload(state->blas);
    free(state->plans);
    free(state->blas);
    cuda_spans_close(state->spans);
    cuda_memory_close(state->memory);
    cudaFree(state->workspace);
    if (state->stream) cudaStreamDestroy(state->stream);
    free(state);
}

static int start_device(cuda_state *state) {
    cuda_blas *blas = state->blas = calloc(1, sizeof *blas);
    state->plans = calloc(1, sizeof *state->plans);
    if (!blas || !state->plans) return KERNELS_NO_MEMORY;
    const cudaError_t code = cudaSetDevice(state->device);
    if (code) return no_device(code);
    if (cuda_blas_load(blas)) {
        kernels_set_why("libcublasLt.so cannot be loaded");
        return KERNELS_NO_DEVICE;
    }
    if (cudaStreamCreateWithPriority(&state->stream, cudaStreamNonBlocking, PRIORITY) ||
        cudaMalloc(&state->workspace, CUDA_WORKSPACE) || blas->create(&blas->handle))
        return KERNELS_NO_MEMORY;
    state->memory = cuda_memory_open();
    state->spans = cuda_spans_open();
    if (!state->memory || !state->spans) return KERNELS_NO_MEMORY;
    return describe_device(state);
}

static void cuda_close(kernels *k) { release(cuda_of(k)); }

static const char *cuda_describe(const kernels *k) {
    return ((const cuda_state *)k->state)->description;
}

static void cuda_allow_tf32(kernels *k, int allow) {
    static const char note[] = " tf32";
    cuda_state *state = cuda_of(k);
    char *end = state->description + strlen(state->description);
    if (!allow == !state->blas->tf32) return;
    if (allow)
        snprintf(end, sizeof state->description - (size_t)(end - state->description), "%s", note);
    else
        end[-(ptrdiff_t)(sizeof note - 1)] = 0;
    state->blas->tf32 = allow;
}

static int cuda_place(const kernels *k, void **stream) {
    const cuda_state *state = k->state;
    *stream = state->stream;
    return state->device;
}

static const char *cuda_device(const kernels *k) { return ((const cuda_state *)k->state)->bus; }

static const char *cuda_sync(kernels *k) {
    cuda_check(k, cudaStreamSynchronize(cuda_of(k)->stream));
    return cuda_of(k)->failure;
}

/* Uses cudaMemcpyDefault, because either side may be memory of cuda_alloc_host. */
static void transfer(kernels *k, void *to, const void *from, size_t bytes) {
    cuda_check(k, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_of(k)->stream));
    cuda_check(k, cudaStreamSynchronize(cuda_of(k)->stream));
}

static void cuda_upload(kernels *k, void *memory, const void *host, size_t bytes) {
    transfer(k, memory, host, bytes);
}

static void cuda_download(kernels *k, void *host, const void *memory, size_t bytes) {
    transfer(k, host, memory, bytes);
}

static void cuda_copy(kernels *k, float *y, const float *x, size_t n) {
    cuda_check(k, cudaMemcpyAsync(y, x, n * sizeof *y, cudaMemcpyDefault, cuda_of(k)->stream));
}

static void cuda_zero(kernels *k, float *x, size_t n) {
    cuda_check(k, cudaMemsetAsync(x, 0, n * sizeof *x, cuda_of(k)->stream));
}

static void cuda_narrow_on(kernels *k, void *stream, uint16_t *y, const float *x, size_t n) {
    const cudaStream_t own = cuda_of(k)->stream;
    cuda_of(k)->stream = stream;
    k->narrow(k, y, x, n);
    cuda_of(k)->stream = own;
}

static void set_kernels(kernels *k) {
    k->close = cuda_close;
    k->describe = cuda_describe;
    k->place = cuda_place;
    k->allow_tf32 = cuda_allow_tf32;
    k->device = cuda_device;
    k->upload = cuda_upload;
    k->download = cuda_download;
    k->sync = cuda_sync;
    k->copy = cuda_copy;
    k->zero = cuda_zero;
    k->narrow_on = cuda_narrow_on;
    cuda_activation_fill(k);
    cuda_attention_fill(k);
    cuda_elementwise_fill(k);
    cuda_embedding_fill(k);
    cuda_heads_fill(k);
    cuda_loss_fill(k);
    cuda_matmul_fill(k);
    cuda_memory_fill(k);
    cuda_norm_fill(k);
    cuda_optimizer_fill(k);
    cuda_rows_fill(k);
    cuda_spans_fill(k);
    cuda_sums_fill(k);
}

static int cuda_open(kernels *k, unsigned number) {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code || devices <= 0) return no_device(code ? code : cudaErrorNoDevice);
    cuda_state *state = calloc(1, sizeof *state);
    if (!state) return KERNELS_NO_MEMORY;
    state->device = (int)(number % (unsigned)devices);
    int status = start_device(state);
    if (status != KERNELS_OK) {
        release(state);
        return status;
    }
    k->state = state;
    set_kernels(k);
    return KERNELS_OK;
}

extern const kernels kernels_cuda;
const kernels kernels_cuda = {.name = "cuda", .open = cuda_open};
