/* Rotary positions: each head's first and second half turn against each other. */
#include "cpu.h"
#include "lanes.h"

CPU_INLINE void turn(float *restrict low, float *restrict high, const float *restrict cosine,
                     const float *restrict sine, size_t half, float sign) {
    for (size_t i = 0; i < half; i++) {
        float a = low[i], b = high[i], s = sign * sine[i];
        low[i] = a * cosine[i] - b * s;
        high[i] = b * cosine[i] + a * s;
    }
}

CPU_CLONES void cpu_rope(kernels *k, float *x, const float *cosines, const float *sines,
                         size_t batch, size_t sequence, size_t heads, size_t dim, float sign) {
    (void)k;
    size_t half = dim / 2;
    for (size_t token = 0; token < batch * sequence; token++) {
        size_t angle = token % sequence * half;
        for (size_t head = 0; head < heads; head++) {
            float *low = x + (token * heads + head) * dim;
            turn(low, low + half, cosines + angle, sines + angle, half, sign);
        }
    }
}
