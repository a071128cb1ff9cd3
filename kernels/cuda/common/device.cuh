/* Definitions that the .cu files share: launches on the backend's stream, sums over the threads of
 * a group, a warp or a block, and elements of both types. The order of a sum depends only on the
 * number of threads. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "cuda/common/cuda_state.h"

enum { THREADS = 256, WARP = 32 };

/* Launches nothing if there are no blocks, because an empty grid would be an error. By default a
 * kernel may use 48 KiB of shared memory, 2 KiB of which are for sums over a block; if it needs
 * more, this function first raises the kernel's limit. */
template <typename... Expected, typename... Given>
static void launch(kernels *k, void (*kernel)(Expected...), size_t blocks, unsigned threads,
                   size_t shared_bytes, Given... given) {
    cudaLaunchConfig_t config = {};
    if (!blocks) return;
    if (blocks > INT32_MAX) {
        cuda_check(k, cudaErrorInvalidValue);
        return;
    }
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

/* Calls f with a value of the C++ type that `type` stands for, so that one launcher serves arrays
 * of both types, which are passed as pointers to void. */
template <typename F> static void by_type(kernels_type type, F f) {
    if (type == KERNELS_BF16)
        f(uint16_t());
    else
        f(float());
}

/* Returns the shared memory that the launch requested. */
static __device__ float *dynamic_shared() {
    extern __shared__ __align__(256) float shared[];
    return shared;
}

static inline size_t pieces_of(size_t n, size_t piece) { return (n + piece - 1) / piece; }

/* Returns the number of blocks for n elements. If the blocks have fewer threads than there are
 * elements, each thread processes several (FOR_EACH). */
static inline size_t blocks_for(size_t n) {
    const size_t blocks = pieces_of(n, THREADS);
    return blocks < 1u << 16 ? blocks : 1u << 16;
}

#define FOR_EACH(i, n)                                                                             \
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < (n);                           \
         i += (size_t)gridDim.x * THREADS)

/* Replaces each of the N values by its sum over a group of LANES threads, on all threads of the
 * group: a part of a warp, a warp, or a whole block. All threads of the block must call this
 * function. */
template <unsigned LANES, unsigned N, typename T> __device__ void group_sums(T (&values)[N]) {
    constexpr unsigned WARPS = LANES > WARP ? LANES / WARP : 1;
    for (unsigned i = 0; i < N; i++)
        for (int mask = LANES / WARPS / 2; mask; mask /= 2)
            values[i] += __shfl_xor_sync(~0u, values[i], mask);
    if constexpr (WARPS > 1) {
        __shared__ T part[N][WARPS];
        for (unsigned i = 0; i < N; i++)
            if (threadIdx.x % WARP == 0) part[i][threadIdx.x / WARP] = values[i];
        __syncthreads();
        for (unsigned i = 0; i < N; i++) {
            values[i] = part[i][0];
            for (unsigned w = 1; w < WARPS; w++) values[i] += part[i][w];
        }
        __syncthreads();
    }
}

template <unsigned LANES, typename T> __device__ T group_sum(T value) {
    T one[1] = {value};
    group_sums<LANES>(one);
    return one[0];
}

/* Returns the sum of every thread's value, on every thread. All threads of the block must call this
 * function. */
template <typename T> __device__ T block_sum(T value) { return group_sum<THREADS>(value); }

/* Returns the largest of all threads' values, on every thread. Ignores NaN, which shows up in later
 * results. */
static __device__ float block_max(float value) {
    __shared__ float part[THREADS / WARP];
    for (int mask = WARP / 2; mask; mask /= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, mask));
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = value;
    __syncthreads();
    for (unsigned w = 0; w < THREADS / WARP; w++) value = fmaxf(value, part[w]);
    __syncthreads();
    return value;
}

/* Elements are fp32, or bf16, the upper half of an fp32. The functions that load and store have the
 * same names for both types, and computations are in fp32.
 *
 * bf16_of rounds to nearest even; NaN stays NaN, with its sign. It uses the only instruction for
 * this rounding (PTX ISA: cvt.rn.bf16.f32); the instruction's own NaN would differ in bits from the
 * host's. */
static __device__ __forceinline__ uint16_t bf16_of(float x) {
    const uint32_t bits = __float_as_uint(x);
#ifdef __CUDACC__
    uint16_t rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
#else
    const uint16_t rounded = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
    return x == x ? rounded : (uint16_t)((bits | 0x400000) >> 16);
}

static __device__ __forceinline__ float load(const float *x) { return *x; }
static __device__ __forceinline__ float load(const uint16_t *x) {
    return __uint_as_float((uint32_t)*x << 16);
}
static __device__ __forceinline__ float rounded_to_bf16(float x) {
    return __uint_as_float((uint32_t)bf16_of(x) << 16);
}
static __device__ __forceinline__ void store(float *y, float x) { *y = x; }
static __device__ __forceinline__ void store(uint16_t *y, float x) { *y = bf16_of(x); }

static __device__ __forceinline__ void unpack_two(float *out, uint32_t two) {
    out[0] = __uint_as_float(two << 16);
    out[1] = __uint_as_float(two & 0xffff0000u);
}
static __device__ __forceinline__ uint32_t pack_two(const float *two) {
    return (uint32_t)bf16_of(two[1]) << 16 | bf16_of(two[0]);
}

/* Loads and stores N elements in one access: 4 of fp32, 4 or 8 of bf16, aligned to their size. */
static __device__ __forceinline__ void load_wide(float (&out)[4], const float *x) {
    const float4 v = *reinterpret_cast<const float4 *>(x);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}
static __device__ __forceinline__ void load_wide(float (&out)[4], const uint16_t *x) {
    const uint2 v = *reinterpret_cast<const uint2 *>(x);
    unpack_two(out, v.x), unpack_two(out + 2, v.y);
}
static __device__ __forceinline__ void load_wide(float (&out)[8], const uint16_t *x) {
    const uint4 v = *reinterpret_cast<const uint4 *>(x);
    unpack_two(out, v.x), unpack_two(out + 2, v.y), unpack_two(out + 4, v.z),
        unpack_two(out + 6, v.w);
}
static __device__ __forceinline__ void store_wide(float *y, const float (&v)[4]) {
    *reinterpret_cast<float4 *>(y) = {v[0], v[1], v[2], v[3]};
}
static __device__ __forceinline__ void store_wide(uint16_t *y, const float (&v)[4]) {
    *reinterpret_cast<uint2 *>(y) = {pack_two(v), pack_two(v + 2)};
}
static __device__ __forceinline__ void store_wide(uint16_t *y, const float (&v)[8]) {
    *reinterpret_cast<uint4 *>(y) = {pack_two(v), pack_two(v + 2), pack_two(v + 4),
                                     pack_two(v + 6)};
}
