/* bf16, the upper half of an fp32, and fp32 by one name: elements of either type, computed with as
 * fp32. */
#ifndef KERNELS_CUDA_BF16_CUH
#define KERNELS_CUDA_BF16_CUH

#include <stdint.h>

#include "cuda/common/cuda_state.h"

/* Rounded to nearest even; NaN stays NaN, with its sign. By the one instruction that there is for
 * it (PTX ISA: cvt.rn.bf16.f32), whose NaN has other bits than the host's. */
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
static __device__ __forceinline__ void store(float *y, float x) { *y = x; }
static __device__ __forceinline__ void store(uint16_t *y, float x) { *y = bf16_of(x); }

static __device__ __forceinline__ void unpack_two(float *out, uint32_t two) {
    out[0] = __uint_as_float(two << 16);
    out[1] = __uint_as_float(two & 0xffff0000u);
}
static __device__ __forceinline__ uint32_t pack_two(const float *two) {
    return (uint32_t)bf16_of(two[1]) << 16 | bf16_of(two[0]);
}

/* The same for N elements in one access: 4 of fp32, 4 or 8 of bf16, aligned to their size. */
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

#endif
