/* bf16 is the upper half of an fp32. fp16 (IEEE 754 binary16) has subnormals of its own, which
 * become normal numbers here. */
#include "state/widen.h"

#include <stdint.h>
#include <string.h>

static uint32_t half_bits(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, fraction = half & 0x3ff;
    const uint32_t exponent = half >> 10 & 0x1f;
    if (exponent == 31) return sign | 0x7f800000 | fraction << 13; /* infinities and NaNs */
    if (exponent != 0) return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0) return sign;
    const unsigned shift = (unsigned)__builtin_clz(fraction) - 21; /* until bit 10 is set */
    return sign | (113 - shift) << 23 | (fraction << shift & 0x3ff) << 13;
}

void widen(float *out, const void *in, size_t n, dcp_dtype dtype) {
    const uint16_t *halves = in;
    if (dtype == DCP_F32) {
        memcpy(out, in, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = dtype == DCP_BF16 ? (uint32_t)halves[i] << 16 : half_bits(halves[i]);
        memcpy(&out[i], &bits, sizeof bits);
    }
}
