/* What needs no sums: vectors, conversions, rows, patches, activations, AdamW. */
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

/* Of at most THREADS elements, which are all read before one is written. */
static __global__ void widen_upper_kernel(float *y, const uint16_t *x, size_t n) {
    float value = threadIdx.x < n ? load(x + threadIdx.x) : 0.0f;
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = value;
}

template <typename To, typename From>
static __global__ void convert_kernel(To *y, const From *x, size_t n) {
    FOR_EACH(i, n) store(y + i, load(x + i));
}

void cuda_narrow(kernels *k, uint16_t *y, const float *x, size_t n) {
    LAUNCH(k, (convert_kernel<uint16_t, float>), blocks_for(n), 0, y, x, n);
}

void cuda_widen(kernels *k, float *y, const uint16_t *x, size_t n) {
    LAUNCH(k, (convert_kernel<float, uint16_t>), blocks_for(n), 0, y, x, n);
}

/* Half of what is left, again and again, lies below all that is still to be read. */
void cuda_widen_upper(kernels *k, float *y, size_t n) {
    const uint16_t *from = (const uint16_t *)y + n;
    size_t at = 0;
    while (n - at > THREADS) {
        size_t here = (n - at) / 2;
        LAUNCH(k, (convert_kernel<float, uint16_t>), blocks_for(here), 0, y + at, from + at, here);
        at += here;
    }
    LAUNCH(k, widen_upper_kernel, (n > at ? 1 : 0), 0, y + at, from + at, n - at);
}

static __global__ void copy_rows_kernel(float *y, size_t y_stride, const float *x, size_t x_stride,
                                        size_t n, size_t dim, bool add) {
    FOR_EACH(i, n) {
        size_t row = i / dim, col = i % dim;
        float *to = y + row * y_stride + col, from = x[row * x_stride + col];
        *to = add ? *to + from : from;
    }
}

void cuda_copy_rows(kernels *k, float *y, size_t y_stride, const float *x, size_t x_stride,
                    size_t rows, size_t dim, unsigned flags) {
    size_t n = rows * dim;
    LAUNCH(k, copy_rows_kernel, blocks_for(n), 0, y, y_stride, x, x_stride, n, dim,
           (flags & KERNELS_ADD) != 0);
}

/* A thread copies one element: from where it stands in its patch to where in its image. */
static __global__ void patches_kernel(float *out, const float *images, kernels_patches s, size_t n,
                                      size_t across, size_t down) {
    FOR_EACH(i, n) {
        size_t x = i % s.patch_width, y = i / s.patch_width % s.patch_height;
        size_t channel = i / (s.patch_width * s.patch_height) % s.channels;
        size_t patch = i / (s.patch_width * s.patch_height * s.channels);
        size_t row = patch / across % down * s.patch_height + y;
        size_t column = patch % across * s.patch_width + x;
        size_t plane = patch / (across * down) * s.channels + channel;
        out[i] = images[(plane * s.height + row) * s.width + column];
    }
}

void cuda_patches(kernels *k, float *out, const float *images, const kernels_patches *shape) {
    size_t across = shape->width / shape->patch_width, down = shape->height / shape->patch_height;
    size_t patch = shape->channels * shape->patch_height * shape->patch_width;
    size_t n = shape->batch * across * down * patch;
    LAUNCH(k, patches_kernel, blocks_for(n), 0, out, images, *shape, n, across, down);
}

/* An activation's value and slope at one place. */
typedef struct point {
    float value, slope;
} point;

static __device__ point gelu_at(float x) {
    float cdf = 0.5f + 0.5f * erff(x * 0.70710678f);
    return {x * cdf, cdf + x * (0.39894228f * expf(-0.5f * x * x))};
}

/* 1 / 2 + tanh(u) / 2 is the logistic function of 2 u. */
static __device__ point gelu_tanh_at(float x) {
    const float a = 0.79788456f, b = 0.044715f;
    float sigma = 1.0f / (1.0f + expf(-2.0f * a * (x + b * x * x * x)));
    float inner = 2.0f * a * (1.0f + 3.0f * b * x * x);
    return {x * sigma, sigma + x * sigma * (1.0f - sigma) * inner};
}

static __device__ point silu_at(float x) {
    float sigma = 1.0f / (1.0f + expf(-x));
    return {x * sigma, sigma * (1.0f + x * (1.0f - sigma))};
}

/* NaN stays. */
static __device__ point relu_at(float x) { return {x < 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f}; }

static __device__ point activation_at(kernels_activation f, float x) {
    switch (f) {
    case KERNELS_RELU:
        return relu_at(x);
    case KERNELS_GELU:
        return gelu_at(x);
    case KERNELS_GELU_TANH:
        return gelu_tanh_at(x);
    default:
        return silu_at(x);
    }
}

template <typename T>
static __global__ void activation_forward_kernel(T *out, const T *x, size_t n,
                                                 kernels_activation f) {
    FOR_EACH(i, n) store(out + i, activation_at(f, load(x + i)).value);
}

void cuda_activation_forward(kernels *k, void *out, const void *x, size_t n, kernels_activation f,
                             kernels_type type) {
    LAUNCH_TYPED(k, type, activation_forward_kernel, blocks_for(n),
                 ARGS((T *)out, (const T *)x, n, f));
}

template <typename T>
static __global__ void activation_backward_kernel(T *dx, const T *dout, const T *x, size_t n,
                                                  kernels_activation f) {
    FOR_EACH(i, n) store(dx + i, load(dout + i) * activation_at(f, load(x + i)).slope);
}

void cuda_activation_backward(kernels *k, void *dx, const void *dout, const void *x, size_t n,
                              kernels_activation f, kernels_type type) {
    LAUNCH_TYPED(k, type, activation_backward_kernel, blocks_for(n),
                 ARGS((T *)dx, (const T *)dout, (const T *)x, n, f));
}

template <typename T>
static __global__ void gated_forward_kernel(T *out, const T *gate, const T *up, size_t n,
                                            kernels_activation f) {
    FOR_EACH(i, n) store(out + i, activation_at(f, load(gate + i)).value * load(up + i));
}

void cuda_gated_forward(kernels *k, void *out, const void *gate, const void *up, size_t n,
                        kernels_activation f, kernels_type type) {
    LAUNCH_TYPED(k, type, gated_forward_kernel, blocks_for(n),
                 ARGS((T *)out, (const T *)gate, (const T *)up, n, f));
}

template <typename T>
static __global__ void gated_backward_kernel(T *dgate, T *dup, const T *dout, const T *gate,
                                             const T *up, size_t n, kernels_activation f) {
    FOR_EACH(i, n) {
        point at = activation_at(f, load(gate + i));
        float d = load(dout + i), u = load(up + i);
        store(dgate + i, d * u * at.slope);
        store(dup + i, d * at.value);
    }
}

void cuda_gated_backward(kernels *k, void *dgate, void *dup, const void *dout, const void *gate,
                         const void *up, size_t n, kernels_activation f, kernels_type type) {
    LAUNCH_TYPED(k, type, gated_backward_kernel, blocks_for(n),
                 ARGS((T *)dgate, (T *)dup, (const T *)dout, (const T *)gate, (const T *)up, n, f));
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
