/* CUDA's C++ on the host. The threads of a block take turns, from one barrier to the next, in
 * ascending or descending order, which changes from launch to launch: kernels that miss a barrier
 * give other results each time. Shared memory holds NaN as a block begins; with AddressSanitizer
 * what a launch did not ask for cannot be touched. Ends the program where threads of a block or a
 * warp wait at different barriers, or leave before one. */
#ifndef EMULATED_LANGUAGE_H
#define EMULATED_LANGUAGE_H

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local /* all threads of a block are one of the host's */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned across = 1, unsigned down = 1, unsigned deep = 1) : x(across), y(down), z(deep) {}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

typedef struct cudaLaunchConfig_st {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
} cudaLaunchConfig_t;

cudaError_t emulated_launch(const cudaLaunchConfig_t *config, const std::function<void()> &body);

template <typename... Expected, typename... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Expected...),
                               Given &&...given) {
    return emulated_launch(config, [&] { kernel(given...); });
}

enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
/* What a block may have on the device that is emulated. */
enum { EMULATED_SHARED = 227 << 10, EMULATED_SHARED_UNASKED = 48 << 10 };
cudaError_t emulated_allow_shared(int bytes);
template <typename Kernel> cudaError_t cudaFuncSetAttribute(Kernel *, int, int bytes) {
    return emulated_allow_shared(bytes);
}

void __syncthreads();
int __syncthreads_or(int holds);
void __syncwarp();
/* What the threads of a warp showed each other. */
struct emulated_shown {
    const unsigned char *first;
    size_t stride;
    const void *of(unsigned lane) const { return first + lane * stride; }
};
/* Each thread of a warp shows `bytes` of its own, at most 64. Valid until the warp's next but one.
 */
emulated_shown emulated_exchange(const void *own, size_t bytes);
void emulated_check(bool holds, const char *why);
/* The calling thread requests a copy, or zeros if `from` is NULL; ends a group of copies; waits for
 * all groups but the last `pending`. Until then the destinations hold NaN, so that neither their
 * old values nor the new ones can be used. */
void emulated_copy_later(void *to, const void *from, size_t bytes);
void emulated_copies_close();
void emulated_copies_wait(size_t pending);

template <typename T> T __shfl_xor_sync(unsigned, T own, int mask) {
    T other;
    const unsigned lane = (threadIdx.x ^ (unsigned)mask) % 32;
    memcpy(&other, emulated_exchange(&own, sizeof own).of(lane), sizeof other);
    return other;
}

inline int __any_sync(unsigned, int holds) {
    const emulated_shown shown = emulated_exchange(&holds, sizeof holds);
    int any = 0;
    for (unsigned i = 0; i < 32; i++) any |= *(const int *)shown.of(i);
    return any;
}

template <typename To, typename From> To emulated_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from, "bits are as many");
    memcpy(&to, &from, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
inline float __fdividef(float a, float b) { return a / b; }
template <typename T> T atomicAdd(T *to, T x) {
    const T before = *to;
    *to += x;
    return before;
}
struct float2 {
    float x, y;
};
struct __align__(16) float4 {
    float x, y, z, w;
};
struct __align__(8) uint2 {
    unsigned x, y;
};
struct __align__(16) uint4 {
    unsigned x, y, z, w;
};
using std::max;
using std::min;

#include "mma.h"

#endif
