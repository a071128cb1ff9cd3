/* An exact sum of doubles is a fixed-point number, wide enough for all doubles, and stored as an
 * array of limbs. Integers can be added in any order with the same result, so every backend, rank
 * and thread gets the same sum. */
#ifndef KERNELS_LIMBS_H
#define KERNELS_LIMBS_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KERNELS_ANYWHERE static inline __host__ __device__
#else
#define KERNELS_ANYWHERE static inline
#endif

/* The value is the sum of limbs[i] * 2^(32 i - 1074); 2^-1074 is the smallest double. With 32 bits
 * per limb there is room for the sum of 2^63 doubles, each below 2^1024. */
enum { KERNELS_LIMBS = 68 };

/* The numbers that a double adds to three consecutive limbs; each is less than 2^32. */
typedef struct kernels_cut {
    unsigned limb;
    uint64_t low, middle, high;
} kernels_cut;

/* Divides a double x >= 0 among limbs. bits: the bits of x. Returns nonzero if x is not finite. */
KERNELS_ANYWHERE int kernels_cut_bits(uint64_t bits, kernels_cut *out) {
    const unsigned exponent = (unsigned)(bits >> 52) & 0x7ff;
    const uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    const uint64_t mantissa = exponent ? fraction | (uint64_t)1 << 52 : fraction;
    const unsigned place = exponent ? exponent - 1 : 0; /* x = mantissa * 2^(place - 1074) */
    const unsigned shift = place % 32;
    const uint64_t shifted = mantissa << shift;
    out->limb = place / 32;
    out->low = shifted & 0xffffffff;
    out->middle = shifted >> 32;
    out->high = shift ? mantissa >> (64 - shift) : 0;
    return exponent == 0x7ff;
}

/* Adds x to a sum's limbs on the host. x must be >= 0 or not finite; sum[KERNELS_LIMBS] counts
 * values that are not finite. Does not carry. */
static inline void kernels_limbs_add(uint64_t *sum, double x) {
    uint64_t bits;
    kernels_cut cut;
    memcpy(&bits, &x, sizeof bits);
    if (kernels_cut_bits(bits, &cut)) {
        sum[KERNELS_LIMBS]++;
        return;
    }
    sum[cut.limb] += cut.low;
    sum[cut.limb + 1] += cut.middle;
    sum[cut.limb + 2] += cut.high;
}

#endif
