/* Updates of parameters, one function for each rule: their speed is that of memory. Where a product
 * is added to another, fmaf says which of them is fused: a compiler might choose differently in
 * another instance of the kernel. */
#include "cuda/common/map.cuh"
#include "kernels/rules.h"

struct adamw : kernels_adamw {
    /* x: param, exp_avg, exp_avg_sq, grad; y: the first three. */
    __device__ void operator()(const float (&x)[4], float (&y)[3]) const {
        const float g = x[3] * grad_scale;
        const float m = x[1] + towards_grad * (g - x[1]);
        const float v = fmaf(x[2], keep_square, add_square * g * g);
        y[0] = fmaf(-step, m / (sqrtf(v) / root + eps), x[0] * decay);
        y[1] = m;
        y[2] = v;
    }
};

static void update_adamw(kernels *k, const kernels_update *u, float *param, void *const *slots,
                         const float *grad, size_t n) {
    float *exp_avg = (float *)slots[0], *exp_avg_sq = (float *)slots[1];
    const map_arrays<float, float, 4, 3> arrays = {
        {param, exp_avg, exp_avg_sq, grad}, {param, exp_avg, exp_avg_sq}, n, false};
    map(k, arrays, adamw{kernels_adamw_of(u)});
}

struct sgd : kernels_sgd {
    /* x: param, momentum_buffer, grad; y: the first two. */
    __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
        const float g = fmaf(decay, x[0], x[2] * grad_scale);
        const float b = fmaf(keep, x[1], add * g);
        y[0] = fmaf(-step, nesterov ? fmaf(ahead, b, g) : b, x[0]);
        y[1] = b;
    }
};

static void update_sgd(kernels *k, const kernels_update *u, float *param, void *const *slots,
                       const float *grad, size_t n) {
    float *buffer = (float *)slots[0];
    const map_arrays<float, float, 3, 2> arrays = {
        {param, buffer, grad}, {param, buffer}, n, false};
    map(k, arrays, sgd{kernels_sgd_of(u)});
}

static void cuda_update(kernels *k, const kernels_update *u, float *param, void *const *slots,
                        const float *grad, size_t n) {
    switch (u->rule) {
    case KERNELS_ADAMW:
        update_adamw(k, u, param, slots, grad, n);
        break;
    case KERNELS_SGD:
        update_sgd(k, u, param, slots, grad, n);
        break;
    }
}

void cuda_optimizer_fill(kernels *k) { k->update = cuda_update; }
