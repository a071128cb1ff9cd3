/* Building blocks of the CPU's loops.
 *
 * A sum has 16 lanes: element i is added to lane i % 16, and at the end the lanes are added
 * pairwise. So the order of additions depends only on the length of the sum, and not on the width
 * of the processor's vectors. The lanes are a plain array, which GCC keeps in registers. A vector
 * type would not do: if it is wider than the processor's vectors, GCC stores it in memory.
 * CPU_CLONES compiles a function for three generations of processors and selects one when the
 * program starts. Multiply-adds are fused only where the code calls FUSED, so all three versions
 * give the same bits. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/shapes.h"

/* Builds with AddressSanitizer have only the default version, because AddressSanitizer is not ready
 * yet when the program selects a version. Builds with a GCC before version 12 have only the default
 * version, too, because such a GCC does not know the names of these processors. The default version
 * is slower, and gives the same bits. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && (__GNUC__ >= 12 || defined(__clang__))
#define CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CPU_CLONES
#endif
#define CPU_INLINE static inline __attribute__((always_inline))
/* x * y + z, rounded once: one instruction on the two newer generations, a slow call on the
 * oldest. */
#define FUSED(x, y, z) __builtin_fmaf(x, y, z)

enum { LANES = 16 };

/* Rounds an fp32 to bf16, to nearest even; all NaNs become the same NaN. */
CPU_INLINE uint16_t bf16_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((x == x ? rounded : 0x7fc00000) >> 16);
}

CPU_INLINE float bf16_wide(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Returns element i of an array of `type`. A loop is fast only if `type` is a constant. */
CPU_INLINE float lanes_load(const void *x, size_t i, kernels_type type) {
    return type == KERNELS_BF16 ? bf16_wide(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

CPU_INLINE void lanes_store(void *y, size_t i, kernels_type type, float value) {
    if (type == KERNELS_BF16)
        ((uint16_t *)y)[i] = bf16_of(value);
    else
        ((float *)y)[i] = value;
}

/* Returns the sum of lane[16], added pairwise. */
CPU_INLINE float lanes_fold(float *lane) {
    for (size_t l = 0; l < 8; l++) lane[l] += lane[l + 8];
    for (size_t l = 0; l < 4; l++) lane[l] += lane[l + 4];
    return lane[0] + lane[2] + (lane[1] + lane[3]);
}

/* Returns the sum of a[n] * b[n]. */
CPU_INLINE float lanes_dot(const float *a, const float *b, size_t n) {
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += a[i + l] * b[i + l];
    for (size_t l = 0; i + l < n; l++) lane[l] += a[i + l] * b[i + l];
    return lanes_fold(lane);
}

/* Returns the sum of a[n]. */
CPU_INLINE float lanes_sum(const float *a, size_t n) {
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += a[i + l];
    for (size_t l = 0; i + l < n; l++) lane[l] += a[i + l];
    return lanes_fold(lane);
}

/* Returns the largest of n > 0 elements of an array of `type`, starting at `at`. */
CPU_INLINE float lanes_largest(const void *x, kernels_type type, size_t at, size_t n) {
    float top[LANES], most = lanes_load(x, at, type);
    size_t i = 0;
    for (size_t l = 0; l < LANES; l++) top[l] = most;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            const float v = lanes_load(x, at + i + l, type);
            top[l] = v > top[l] ? v : top[l];
        }
    for (size_t l = 0; l < LANES; l++) most = top[l] > most ? top[l] : most;
    for (; i < n; i++) {
        const float v = lanes_load(x, at + i, type);
        most = v > most ? v : most;
    }
    return most;
}

/* Returns exp(x), within 1 unit in the last place (tests/kernels/kernel_exp.c); exp(88) above 88,
 * and 0 below -87.69. NaN stays NaN. x is split into n ln 2 + r with |r| <= ln 2 / 2, where ln 2 is
 * the sum of two constants for precision. exp(r) is computed by the polynomial of Cephes' expf, and
 * multiplied by 2^n, or by 0 if n is -127. */
CPU_INLINE float lanes_exp(float x) {
    const float magic = 0x1.8p23f + 127.0f; /* adding it leaves n + 127 in the low bits */
    float c = x > 88.0f ? 88.0f : x;
    c = c < -88.0f ? -88.0f : c;
    float shifted = FUSED(c, 1.44269504088896341f, magic);
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    float n = shifted - magic;
    float r = FUSED(n, -0.693359375f, c);
    r = FUSED(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = FUSED(p, r, 1.3981999507e-3f);
    p = FUSED(p, r, 8.3334519073e-3f);
    p = FUSED(p, r, 4.1665795894e-2f);
    p = FUSED(p, r, 1.6666665459e-1f);
    p = FUSED(p, r, 5.0000001201e-1f);
    p = FUSED(p, r, 1.0f);
    p = FUSED(p, r, 1.0f);
    uint32_t power_bits = bits << 23;
    float power;
    memcpy(&power, &power_bits, sizeof power);
    return p * power;
}

/* Returns erf(x), within 2 units in the last place (tests/kernels/kernel_exp.c); NaN stays NaN.
 * There are two minimax polynomials P and Q: if |x| is below 0.9277, the result is x + x P(x^2);
 * otherwise it is 1 - exp(-|x| - |x| Q(|x|)), with the sign of x. */
CPU_INLINE float lanes_erf(float x) {
    float s = x * x, t = x < 0.0f ? -x : x;
    float low = -5.96761703e-4f;
    low = low * s + 4.99119423e-3f;
    low = low * s - 2.67681349e-2f;
    low = low * s + 1.12819925e-1f;
    low = low * s - 3.76125336e-1f;
    low = low * s + 1.28379166e-1f;
    low = low * x + x;
    t = t > 4.0f ? 4.0f : t; /* above 4, erf rounds to 1 */
    float high = -1.72853470e-5f;
    high = high * t + 3.83197126e-4f;
    high = high * t - 3.88396438e-3f;
    high = high * t + 2.42546219e-2f;
    high = high * t - 1.06777877e-1f;
    high = high * t - 6.34846687e-1f;
    high = high * t - 1.28717512e-1f;
    high = 1.0f - lanes_exp(high * t - t);
    high = x < 0.0f ? -high : high;
    return t > 0.927734375f ? high : low;
}
