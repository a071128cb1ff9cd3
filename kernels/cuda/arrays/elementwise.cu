/* Kernels on vectors, and conversions. The bandwidth of the memory limits their speed. */
#include "cuda/common/map.cuh"
#include "kernels/rules.h"

struct scaled {
    float a;
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = a * x[0]; }
};

static void cuda_scale(kernels *k, float *x, float a, size_t n) {
    map(k, map_arrays<float, float, 1, 1>{{x}, {x}, n, false}, scaled{a});
}

struct added {
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = x[0] + x[1]; }
};

static void cuda_add(kernels *k, float *y, const float *x, size_t n) {
    map(k, map_arrays<float, float, 2, 1>{{y, x}, {y}, n, false}, added{});
}

struct same {
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = x[0]; }
};

static void cuda_narrow(kernels *k, uint16_t *y, const float *x, size_t n) {
    map(k, map_arrays<float, uint16_t, 1, 1>{{x}, {y}, n, false}, same{});
}

static void cuda_widen(kernels *k, float *y, const uint16_t *x, size_t n) {
    map(k, map_arrays<uint16_t, float, 1, 1>{{x}, {y}, n, false}, same{});
}

/* One block can widen LAST elements in place, because it reads all of them before it writes. */
enum { LAST_THREADS = 1024, LAST_UNITS = 8, LAST = 4 * LAST_UNITS * LAST_THREADS };

static __global__ void __launch_bounds__(LAST_THREADS)
    widen_last_kernel(float *y, const uint16_t *x, unsigned n, bool wide) {
    float v[LAST_UNITS][4];
    load_share<LAST_THREADS>(v, x, threadIdx.x, n, wide);
    __syncthreads();
    store_share<LAST_THREADS>(y, v, threadIdx.x, n, wide);
}

/* Repeatedly widens the first half of the remaining elements; the result does not overlap the
 * elements that are still to be read. At the end, one block widens the last elements, at most LAST
 * of them. */
static void cuda_widen_upper(kernels *k, float *y, size_t n) {
    const uint16_t *from = (const uint16_t *)y + n;
    size_t at = 0;
    while (n - at > LAST) {
        const size_t here = (n - at) / 2 / 8 * 8; /* a multiple of 8, so the next part is aligned to
                                                   * 16 bytes */
        cuda_widen(k, y + at, from + at, here);
        at += here;
    }
    const bool wide = n % 4 == 0 && aligned(y + at, from + at);
    launch(k, widen_last_kernel, n > at ? 1 : 0, LAST_THREADS, 0, y + at, from + at,
           (unsigned)(n - at), wide);
}

void cuda_elementwise_fill(kernels *k) {
    k->scale = cuda_scale;
    k->add = cuda_add;
    k->narrow = cuda_narrow;
    k->widen = cuda_widen;
    k->widen_upper = cuda_widen_upper;
}

/* Updates of parameters, with one function per rule. The bandwidth of the memory limits their
 * speed. If two products are added, fmaf determines which of them is fused with the addition; a
 * compiler could choose differently in each instance of the kernel. */

struct adamw : kernels_adamw {
    /* x: param, exp_avg, exp_avg_sq, grad; y: the first three. */
    __device__ void operator()(const float (&x)[4], float (&y)[3]) const {
        const float g = x[3] * grad_scale;
        const float m = x[1] + towards_grad * (g - x[1]);
        const float v = fmaf(x[2], keep_square, add_square * g * g);
        y[0] = fmaf(-step_size, m / (sqrtf(v) / root + eps), x[0] * decay);
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
        y[0] = fmaf(-step_size, nesterov ? fmaf(ahead, b, g) : b, x[0]);
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
