/* What the .cu files share: launches on the backend's stream, and sums over a block of threads in
 * an order that depends on nothing but the block's size, which is always THREADS. */
#ifndef KERNELS_CUDA_DEVICE_CUH
#define KERNELS_CUDA_DEVICE_CUH

#include "cuda.h"

enum { THREADS = 256 };

/* Nothing to do is no launch: an empty grid would be an error. Shared memory beyond what every
 * kernel may have, 48 KiB with the 2 KiB that sums over a block take, has to be allowed. */
template <typename... Expected, typename... Given>
static void launch(kernels *k, void (*kernel)(Expected...), size_t blocks, unsigned threads,
                   size_t shared_bytes, Given... given) {
    cudaLaunchConfig_t config = {};
    if (!blocks) return;
    if (shared_bytes > 46 << 10)
        cuda_check(k, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           (int)shared_bytes));
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = cuda_of(k)->stream;
    cuda_check(k, cudaLaunchKernelEx(&config, kernel, given...));
}

#define LAUNCH(k, kernel, blocks, shared_bytes, ...)                                               \
    launch((k), (kernel), (blocks), THREADS, (shared_bytes), __VA_ARGS__)

/* kernel<T> with arrays of T, which are passed as void: one launcher for both types. */
#define LAUNCH_TYPED(k, type, kernel, blocks, CALL)                                                \
    do {                                                                                           \
        if ((type) == KERNELS_BF16) {                                                              \
            typedef uint16_t T;                                                                    \
            LAUNCH(k, kernel<T>, blocks, 0, CALL);                                                 \
        } else {                                                                                   \
            typedef float T;                                                                       \
            LAUNCH(k, kernel<T>, blocks, 0, CALL);                                                 \
        }                                                                                          \
    } while (0)
#define ARGS(...) __VA_ARGS__

/* What the launch asked for as shared memory. */
static __device__ float *dynamic_shared() {
    extern __shared__ __align__(256) float shared[];
    return shared;
}

/* Blocks for n elements; the kernel strides over what is left. */
static inline size_t blocks_for(size_t n) {
    size_t blocks = (n + THREADS - 1) / THREADS;
    return blocks < 1u << 16 ? blocks : 1u << 16;
}

#define FOR_EACH(i, n)                                                                             \
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < (n);                           \
         i += (size_t)gridDim.x * THREADS)

/* The upper half of an fp32, rounded to nearest even; NaN stays NaN. */
static __device__ uint16_t bf16_of(float x) {
    uint32_t bits = __float_as_uint(x);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((x == x ? rounded : bits | 0x400000) >> 16);
}

/* Elements of either type, computed with as fp32. */
static __device__ float load(const float *x) { return *x; }
static __device__ float load(const uint16_t *x) { return __uint_as_float((uint32_t)*x << 16); }
static __device__ void store(float *y, float x) { *y = x; }
static __device__ void store(uint16_t *y, float x) { *y = bf16_of(x); }

/* The sum of every thread's value, on every thread. All threads of the block call it. */
template <typename T> __device__ T block_sum(T value) {
    __shared__ T part[THREADS];
    part[threadIdx.x] = value;
    __syncthreads();
    for (unsigned width = THREADS / 2; width; width /= 2) {
        if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
        __syncthreads();
    }
    T sum = part[0];
    __syncthreads();
    return sum;
}

/* The largest likewise; a NaN anywhere shows in what is computed from it, not here. */
static __device__ float block_max(float value) {
    __shared__ float part[THREADS];
    part[threadIdx.x] = value;
    __syncthreads();
    for (unsigned width = THREADS / 2; width; width /= 2) {
        if (threadIdx.x < width)
            part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + width]);
        __syncthreads();
    }
    float most = part[0];
    __syncthreads();
    return most;
}

#endif
