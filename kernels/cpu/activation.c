/* Activations, alone and as gates. Each loop is compiled for one activation, chosen outside it. */
#include "cpu.h"
#include "lanes.h"

/* An activation's value and slope at one place. */
typedef struct point {
    float value, slope;
} point;

/* NaN stays. */
CPU_INLINE point relu_at(float x) { return (point){x < 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f}; }

CPU_INLINE point gelu_at(float x) {
    float cdf = 0.5f + 0.5f * lanes_erf(x * 0.70710678f);
    return (point){x * cdf, cdf + x * (0.39894228f * lanes_exp(-0.5f * x * x))};
}

/* 1 / 2 + tanh(u) / 2 is the logistic function of 2 u. */
CPU_INLINE point gelu_tanh_at(float x) {
    const float a = 0.79788456f, b = 0.044715f;
    float sigma = 1.0f / (1.0f + lanes_exp(-2.0f * a * (x + b * x * x * x)));
    float inner = 2.0f * a * (1.0f + 3.0f * b * x * x);
    return (point){x * sigma, sigma + x * sigma * (1.0f - sigma) * inner};
}

CPU_INLINE point silu_at(float x) {
    float sigma = 1.0f / (1.0f + lanes_exp(-x));
    return (point){x * sigma, sigma * (1.0f + x * (1.0f - sigma))};
}

/* CHOOSE(f, loop, arguments of the loop after its first, which is the activation's function) */
typedef point activation(float x);
#define CHOOSE(f, loop, ...)                                                                       \
    switch (f) {                                                                                   \
    case KERNELS_RELU:                                                                             \
        loop(relu_at, __VA_ARGS__);                                                                \
        break;                                                                                     \
    case KERNELS_GELU:                                                                             \
        loop(gelu_at, __VA_ARGS__);                                                                \
        break;                                                                                     \
    case KERNELS_GELU_TANH:                                                                        \
        loop(gelu_tanh_at, __VA_ARGS__);                                                           \
        break;                                                                                     \
    case KERNELS_SILU:                                                                             \
        loop(silu_at, __VA_ARGS__);                                                                \
        break;                                                                                     \
    }

/* out may be x, and in the loops below dx and dgate may be what they are computed from: each
 * element is read before it is written. */
CPU_INLINE void forward(activation *at, float *out, const float *x, size_t n) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) out[i] = at(x[i]).value;
}

CPU_INLINE void backward(activation *at, float *dx, const float *dout, const float *x, size_t n) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) dx[i] = dout[i] * at(x[i]).slope;
}

CPU_INLINE void gate_forward(activation *at, float *restrict out, const float *restrict gate,
                             const float *restrict up, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = at(gate[i]).value * up[i];
}

CPU_INLINE void gate_backward(activation *at, float *dgate, float *dup, const float *dout,
                              const float *gate, const float *up, size_t n) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        point p = at(gate[i]);
        float d = dout[i], u = up[i];
        dgate[i] = d * u * p.slope;
        dup[i] = d * p.value;
    }
}

/* bf16 goes through fp32 a stretch at a time, which stays in the nearest cache. */
enum { STRETCH = 1024 };

CPU_INLINE size_t stretch(size_t left) { return left < STRETCH ? left : STRETCH; }

CPU_INLINE void widen(float *restrict y, const uint16_t *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = bf16_wide(x[i]);
}

CPU_INLINE void narrow(uint16_t *restrict y, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = bf16_of(x[i]);
}

CPU_CLONES static void forward_f32(float *out, const float *x, size_t n,
                                   kernels_activation f){CHOOSE(f, forward, out, x, n)}

CPU_CLONES
    static void forward_bf16(uint16_t *out, const uint16_t *x, size_t n, kernels_activation f) {
    float wide[STRETCH];
    for (size_t at = 0; at < n; at += STRETCH) {
        const size_t here = stretch(n - at);
        widen(wide, x + at, here);
        CHOOSE(f, forward, wide, wide, here)
        narrow(out + at, wide, here);
    }
}

void cpu_activation_forward(kernels *k, void *out, const void *x, size_t n, kernels_activation f,
                            kernels_type type) {
    (void)k;
    if (type == KERNELS_BF16)
        forward_bf16(out, x, n, f);
    else
        forward_f32(out, x, n, f);
}

CPU_CLONES static void backward_f32(float *dx, const float *dout, const float *x, size_t n,
                                    kernels_activation f){CHOOSE(f, backward, dx, dout, x, n)}

CPU_CLONES static void backward_bf16(uint16_t *dx, const uint16_t *dout, const uint16_t *x,
                                     size_t n, kernels_activation f) {
    float wide[STRETCH], d[STRETCH];
    for (size_t at = 0; at < n; at += STRETCH) {
        const size_t here = stretch(n - at);
        widen(wide, x + at, here);
        widen(d, dout + at, here);
        CHOOSE(f, backward, d, d, wide, here)
        narrow(dx + at, d, here);
    }
}

void cpu_activation_backward(kernels *k, void *dx, const void *dout, const void *x, size_t n,
                             kernels_activation f, kernels_type type) {
    (void)k;
    if (type == KERNELS_BF16)
        backward_bf16(dx, dout, x, n, f);
    else
        backward_f32(dx, dout, x, n, f);
}

CPU_CLONES static void gated_f32(float *out, const float *gate, const float *up, size_t n,
                                 kernels_activation f){CHOOSE(f, gate_forward, out, gate, up, n)}

CPU_CLONES static void gated_bf16(uint16_t *out, const uint16_t *gate, const uint16_t *up, size_t n,
                                  kernels_activation f) {
    float g[STRETCH], u[STRETCH], wide[STRETCH];
    for (size_t at = 0; at < n; at += STRETCH) {
        const size_t here = stretch(n - at);
        widen(g, gate + at, here);
        widen(u, up + at, here);
        CHOOSE(f, gate_forward, wide, g, u, here)
        narrow(out + at, wide, here);
    }
}

void cpu_gated_forward(kernels *k, void *out, const void *gate, const void *up, size_t n,
                       kernels_activation f, kernels_type type) {
    (void)k;
    if (type == KERNELS_BF16)
        gated_bf16(out, gate, up, n, f);
    else
        gated_f32(out, gate, up, n, f);
}

CPU_CLONES static void gated_backward_f32(float *dgate, float *dup, const float *dout,
                                          const float *gate, const float *up, size_t n,
                                          kernels_activation f){
    CHOOSE(f, gate_backward, dgate, dup, dout, gate, up, n)}

CPU_CLONES static void gated_backward_bf16(uint16_t *dgate, uint16_t *dup, const uint16_t *dout,
                                           const uint16_t *gate, const uint16_t *up, size_t n,
                                           kernels_activation f) {
    float g[STRETCH], u[STRETCH], d[STRETCH];
    for (size_t at = 0; at < n; at += STRETCH) {
        const size_t here = stretch(n - at);
        widen(g, gate + at, here);
        widen(u, up + at, here);
        widen(d, dout + at, here);
        CHOOSE(f, gate_backward, g, u, d, g, u, here)
        narrow(dgate + at, g, here);
        narrow(dup + at, u, here);
    }
}

void cpu_gated_backward(kernels *k, void *dgate, void *dup, const void *dout, const void *gate,
                        const void *up, size_t n, kernels_activation f, kernels_type type) {
    (void)k;
    if (type == KERNELS_BF16)
        gated_backward_bf16(dgate, dup, dout, gate, up, n, f);
    else
        gated_backward_f32(dgate, dup, dout, gate, up, n, f);
}
