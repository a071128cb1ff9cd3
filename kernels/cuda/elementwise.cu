/* What needs no sums: vectors, SwiGLU, rotary positions, AdamW. */
#include <math.h>

#include "device.cuh"

static __global__ void scale_kernel(float *x, float a, size_t n) { FOR_EACH(i, n) x[i] *= a; }

void cuda_scale(kernels *k, float *x, float a, size_t n) {
    LAUNCH(k, scale_kernel, blocks_for(n), 0, x, a, n);
}

static __global__ void add_kernel(float *y, const float *x, size_t n) {
    FOR_EACH(i, n) y[i] += x[i];
}

void cuda_add(kernels *k, float *y, const float *x, size_t n) {
    LAUNCH(k, add_kernel, blocks_for(n), 0, y, x, n);
}

static __global__ void swiglu_forward_kernel(float *out, const float *gate, const float *up,
                                             size_t n) {
    FOR_EACH(i, n) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

void cuda_swiglu_forward(kernels *k, float *out, const float *gate, const float *up, size_t n) {
    LAUNCH(k, swiglu_forward_kernel, blocks_for(n), 0, out, gate, up, n);
}

static __global__ void swiglu_backward_kernel(float *dgate, float *dup, const float *dout,
                                              const float *gate, const float *up, size_t n) {
    FOR_EACH(i, n) {
        float g = gate[i], u = up[i], d = dout[i];
        float sigma = 1.0f / (1.0f + expf(-g));
        dgate[i] = d * u * (sigma * (1.0f + g * (1.0f - sigma)));
        dup[i] = d * (g * sigma);
    }
}

void cuda_swiglu_backward(kernels *k, float *dgate, float *dup, const float *dout,
                          const float *gate, const float *up, size_t n) {
    LAUNCH(k, swiglu_backward_kernel, blocks_for(n), 0, dgate, dup, dout, gate, up, n);
}

/* A thread turns one pair. */
static __global__ void rope_kernel(float *x, const float *cosines, const float *sines, size_t pairs,
                                   size_t sequence, size_t heads, size_t half, float sign) {
    FOR_EACH(pair, pairs) {
        size_t i = pair % half, row = pair / half;
        size_t angle = row / heads % sequence * half + i;
        float *low = x + row * 2 * half + i, *high = low + half;
        float a = *low, b = *high, c = cosines[angle], s = sign * sines[angle];
        *low = a * c - b * s;
        *high = b * c + a * s;
    }
}

void cuda_rope(kernels *k, float *x, const float *cosines, const float *sines, size_t batch,
               size_t sequence, size_t heads, size_t dim, float sign) {
    size_t pairs = batch * sequence * heads * (dim / 2);
    LAUNCH(k, rope_kernel, blocks_for(pairs), 0, x, cosines, sines, pairs, sequence, heads, dim / 2,
           sign);
}

/* The options as PyTorch passes them on to its fp32 kernels: computed in fp64, then rounded. */
typedef struct factors {
    float grad_scale, decay, towards_grad, keep_square, add_square, root, eps, step;
} factors;

static factors factors_of(const kernels_adamw *o) {
    double correction1 = 1.0 - pow(o->beta1, (double)o->step);
    double correction2 = 1.0 - pow(o->beta2, (double)o->step);
    factors f;
    f.grad_scale = (float)o->grad_scale;
    f.decay = (float)(1.0 - o->lr * o->weight_decay);
    f.towards_grad = (float)(1.0 - o->beta1);
    f.keep_square = (float)o->beta2;
    f.add_square = (float)(1.0 - o->beta2);
    f.root = (float)sqrt(correction2);
    f.eps = (float)o->eps;
    f.step = (float)(o->lr / correction1);
    return f;
}

static __global__ void adamw_kernel(float *param, float *exp_avg, float *exp_avg_sq,
                                    const float *grad, size_t n, factors f) {
    FOR_EACH(i, n) {
        float g = grad[i] * f.grad_scale;
        float m = exp_avg[i] + f.towards_grad * (g - exp_avg[i]);
        float v = exp_avg_sq[i] * f.keep_square + f.add_square * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        param[i] = param[i] * f.decay - f.step * (m / (sqrtf(v) / f.root + f.eps));
    }
}

void cuda_adamw(kernels *k, float *param, float *exp_avg, float *exp_avg_sq, const float *grad,
                size_t n, const kernels_adamw *options) {
    LAUNCH(k, adamw_kernel, blocks_for(n), 0, param, exp_avg, exp_avg_sq, grad, n,
           factors_of(options));
}
