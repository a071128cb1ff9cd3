/* SwiGLU. */
#include "cpu.h"
#include "lanes.h"

CPU_CLONES void cpu_swiglu_forward(kernels *k, float *restrict out, const float *restrict gate,
                                   const float *restrict up, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) out[i] = gate[i] / (1.0f + lanes_exp(-gate[i])) * up[i];
}

/* dgate may be gate and dup may be up: each element is read before it is written. */
CPU_CLONES void cpu_swiglu_backward(kernels *k, float *dgate, float *dup, const float *dout,
                                    const float *gate, const float *up, size_t n) {
    (void)k;
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        float g = gate[i], u = up[i], d = dout[i];
        float sigma = 1.0f / (1.0f + lanes_exp(-g));
        dgate[i] = d * u * (sigma * (1.0f + g * (1.0f - sigma)));
        dup[i] = d * (g * sigma);
    }
}
