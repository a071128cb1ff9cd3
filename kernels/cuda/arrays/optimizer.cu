/* Updates of parameters, one function a rule: bytes moved are all that counts. */
#include "cuda/common/map.cuh"

/* The options as PyTorch passes them on to its fp32 kernels: computed in fp64, then rounded. */
struct adamw {
    float grad_scale, decay, towards_grad, keep_square, add_square, root, eps, step;

    /* x: param, exp_avg, exp_avg_sq, grad; y: the first three. Of two products that are added, what
     * is fused is said: a compiler may choose otherwise in another copy of this. */
    __device__ void operator()(const float (&x)[4], float (&y)[3]) const {
        const float g = x[3] * grad_scale;
        const float m = x[1] + towards_grad * (g - x[1]);
        const float v = fmaf(x[2], keep_square, add_square * g * g);
        y[0] = fmaf(-step, m / (sqrtf(v) / root + eps), x[0] * decay);
        y[1] = m;
        y[2] = v;
    }
};

static adamw adamw_of(const kernels_update *u) {
    const double correction1 = 1.0 - pow(u->beta1, (double)u->step);
    const double correction2 = 1.0 - pow(u->beta2, (double)u->step);
    adamw a;
    a.grad_scale = (float)u->grad_scale;
    a.decay = (float)(1.0 - u->lr * u->weight_decay);
    a.towards_grad = (float)(1.0 - u->beta1);
    a.keep_square = (float)u->beta2;
    a.add_square = (float)(1.0 - u->beta2);
    a.root = (float)sqrt(correction2);
    a.eps = (float)u->eps;
    a.step = (float)(u->lr / correction1);
    return a;
}

static void update_adamw(kernels *k, const kernels_update *u, float *param, void *const *slots,
                         const float *grad, size_t n) {
    float *exp_avg = (float *)slots[0], *exp_avg_sq = (float *)slots[1];
    const map_arrays<float, float, 4, 3> arrays = {
        {param, exp_avg, exp_avg_sq, grad}, {param, exp_avg, exp_avg_sq}, n, false};
    map(k, arrays, adamw_of(u));
}

struct sgd {
    float grad_scale, decay, keep, add, ahead, step;
    bool nesterov;

    /* x: param, momentum_buffer, grad; y: the first two. */
    __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
        const float g = fmaf(decay, x[0], x[2] * grad_scale);
        const float b = fmaf(keep, x[1], add * g);
        y[0] = fmaf(-step, nesterov ? fmaf(ahead, b, g) : b, x[0]);
        y[1] = b;
    }
};

static sgd sgd_of(const kernels_update *u) {
    const bool begins = u->step == 1 || u->momentum == 0;
    sgd s;
    s.grad_scale = (float)u->grad_scale;
    s.decay = (float)u->weight_decay;
    s.keep = begins ? 0.0f : (float)u->momentum;
    s.add = begins ? 1.0f : (float)(1.0 - u->dampening);
    s.ahead = (float)u->momentum;
    s.step = (float)u->lr;
    s.nesterov = u->nesterov;
    return s;
}

static void update_sgd(kernels *k, const kernels_update *u, float *param, void *const *slots,
                       const float *grad, size_t n) {
    float *buffer = (float *)slots[0];
    const map_arrays<float, float, 3, 2> arrays = {
        {param, buffer, grad}, {param, buffer}, n, false};
    map(k, arrays, sgd_of(u));
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
