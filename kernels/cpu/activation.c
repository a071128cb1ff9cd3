/* Activations, alone and in gated units. Each loop is compiled once for each activation and type;
 * code outside the loop chooses among these versions. */
#include "cpu/cpu.h"
#include "cpu/lanes.h"

/* An activation's value and slope at one point. */
typedef struct cpu_point {
    float value, slope;
} cpu_point;

/* The comparison is such that NaN stays NaN. */
CPU_INLINE cpu_point relu_at(float x) {
    return (cpu_point){x < 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f};
}

CPU_INLINE cpu_point gelu_at(float x) {
    float cdf = 0.5f + 0.5f * lanes_erf(x * 0.70710678f);
    return (cpu_point){x * cdf, cdf + x * (0.39894228f * lanes_exp(-0.5f * x * x))};
}

/* Uses the identity 1 / 2 + tanh(u) / 2 = logistic(2 u). */
CPU_INLINE cpu_point gelu_tanh_at(float x) {
    const float a = 0.79788456f, b = 0.044715f;
    float sigma = 1.0f / (1.0f + lanes_exp(-2.0f * a * (x + b * x * x * x)));
    float inner = 2.0f * a * (1.0f + 3.0f * b * x * x);
    return (cpu_point){x * sigma, sigma + x * sigma * (1.0f - sigma) * inner};
}

CPU_INLINE cpu_point silu_at(float x) {
    float sigma = 1.0f / (1.0f + lanes_exp(-x));
    return (cpu_point){x * sigma, sigma * (1.0f + x * (1.0f - sigma))};
}

typedef cpu_point activation(float x);

/* An output may equal an input, as kernels.h permits: each element is read before it is written. */
CPU_INLINE void forward(activation *at, kernels_type type, void *out, const void *x, size_t n) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) lanes_store(out, i, type, at(lanes_load(x, i, type)).value);
}

/* out may be NULL. */
CPU_INLINE void backward(activation *at, kernels_type type, void *out, void *dx, const void *dout,
                         const void *x, size_t n) {
    if (!out) {
#pragma GCC ivdep
        for (size_t i = 0; i < n; i++)
            lanes_store(dx, i, type, lanes_load(dout, i, type) * at(lanes_load(x, i, type)).slope);
        return;
    }
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        const cpu_point p = at(lanes_load(x, i, type));
        const float d = lanes_load(dout, i, type);
        lanes_store(dx, i, type, d * p.slope);
        lanes_store(out, i, type, p.value);
    }
}

CPU_INLINE void gate_forward(activation *at, kernels_type type, void *out, const void *gate,
                             const void *up, size_t n) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++)
        lanes_store(out, i, type, at(lanes_load(gate, i, type)).value * lanes_load(up, i, type));
}

CPU_INLINE void gate_backward(activation *at, kernels_type type, void *out, void *dgate, void *dup,
                              const void *dout, const void *gate, const void *up, size_t n) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        const cpu_point p = at(lanes_load(gate, i, type));
        const float d = lanes_load(dout, i, type), u = lanes_load(up, i, type);
        lanes_store(dgate, i, type, d * u * p.slope);
        lanes_store(dup, i, type, d * p.value);
        lanes_store(out, i, type, p.value * u);
    }
}

/* CHOOSE(loop, f, type, arguments...): calls `loop` with f and type as constants, followed by the
 * arguments. */
#define CHOOSE(loop, f, type, ...)                                                                 \
    if ((type) == KERNELS_BF16)                                                                    \
        CHOOSE_ACTIVATION(loop, f, KERNELS_BF16, __VA_ARGS__)                                      \
    else                                                                                           \
        CHOOSE_ACTIVATION(loop, f, KERNELS_F32, __VA_ARGS__)
#define CHOOSE_ACTIVATION(loop, f, ...)                                                            \
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

CPU_CLONES static void cpu_activation_forward(kernels *k, void *out, const void *x, size_t n,
                                              kernels_activation f, kernels_type type) {
    (void)k;
    CHOOSE(forward, f, type, out, x, n)
}

CPU_CLONES static void cpu_activation_backward(kernels *k, void *out, void *dx, const void *dout,
                                               const void *x, size_t n, kernels_activation f,
                                               kernels_type type) {
    (void)k;
    CHOOSE(backward, f, type, out, dx, dout, x, n)
}

CPU_CLONES static void cpu_gated_forward(kernels *k, void *out, const void *gate, const void *up,
                                         size_t n, kernels_activation f, kernels_type type) {
    (void)k;
    CHOOSE(gate_forward, f, type, out, gate, up, n)
}

CPU_CLONES static void cpu_gated_backward(kernels *k, void *out, void *dgate, void *dup,
                                          const void *dout, const void *gate, const void *up,
                                          size_t n, kernels_activation f, kernels_type type) {
    (void)k;
    CHOOSE(gate_backward, f, type, out, dgate, dup, dout, gate, up, n)
}

void cpu_activation_fill(kernels *k) {
    k->activation_forward = cpu_activation_forward;
    k->activation_backward = cpu_activation_backward;
    k->gated_forward = cpu_gated_forward;
    k->gated_backward = cpu_gated_backward;
}
