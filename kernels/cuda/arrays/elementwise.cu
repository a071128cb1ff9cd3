/* Vectors, conversions, AdamW: bytes moved are all that counts. */
#include "cuda/common/map.cuh"

struct scaled {
    float a;
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = a * x[0]; }
};

void cuda_scale(kernels *k, float *x, float a, size_t n) {
    map(k, map_arrays<float, float, 1, 1>{{x}, {x}, n, false}, scaled{a});
}

struct added {
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = x[0] + x[1]; }
};

void cuda_add(kernels *k, float *y, const float *x, size_t n) {
    map(k, map_arrays<float, float, 2, 1>{{y, x}, {y}, n, false}, added{});
}

struct same {
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const { y[0] = x[0]; }
};

void cuda_narrow(kernels *k, uint16_t *y, const float *x, size_t n) {
    map(k, map_arrays<float, uint16_t, 1, 1>{{x}, {y}, n, false}, same{});
}

void cuda_widen(kernels *k, float *y, const uint16_t *x, size_t n) {
    map(k, map_arrays<uint16_t, float, 1, 1>{{x}, {y}, n, false}, same{});
}

/* What one block widens in place: all is read before an element is written. */
enum { LAST_THREADS = 1024, LAST_UNITS = 8, LAST = 4 * LAST_UNITS * LAST_THREADS };

static __global__ void __launch_bounds__(LAST_THREADS)
    widen_last_kernel(float *y, const uint16_t *x, unsigned n, bool wide) {
    float v[LAST_UNITS][4];
    load_share<LAST_THREADS>(v, x, threadIdx.x, n, wide);
    __syncthreads();
    store_share<LAST_THREADS>(y, v, threadIdx.x, n, wide);
}

/* Half of what is left, again and again, lies below all that is still to be read. */
void cuda_widen_upper(kernels *k, float *y, size_t n) {
    const uint16_t *from = (const uint16_t *)y + n;
    size_t at = 0;
    while (n - at > LAST) {
        const size_t here = (n - at) / 2 / 8 * 8; /* the next begins on 16 bytes again */
        cuda_widen(k, y + at, from + at, here);
        at += here;
    }
    const bool wide = n % 4 == 0 && aligned(y + at, from + at);
    launch(k, widen_last_kernel, n > at ? 1 : 0, LAST_THREADS, 0, y + at, from + at,
           (unsigned)(n - at), wide);
}

/* The options as PyTorch passes them on to its fp32 kernels: computed in fp64, then rounded. */
struct adamw_update {
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

static adamw_update update_of(const kernels_adamw *o) {
    const double correction1 = 1.0 - pow(o->beta1, (double)o->step);
    const double correction2 = 1.0 - pow(o->beta2, (double)o->step);
    adamw_update u;
    u.grad_scale = (float)o->grad_scale;
    u.decay = (float)(1.0 - o->lr * o->weight_decay);
    u.towards_grad = (float)(1.0 - o->beta1);
    u.keep_square = (float)o->beta2;
    u.add_square = (float)(1.0 - o->beta2);
    u.root = (float)sqrt(correction2);
    u.eps = (float)o->eps;
    u.step = (float)(o->lr / correction1);
    return u;
}

void cuda_adamw(kernels *k, float *param, float *exp_avg, float *exp_avg_sq, const float *grad,
                size_t n, const kernels_adamw *options) {
    const map_arrays<float, float, 4, 3> a = {
        {param, exp_avg, exp_avg_sq, grad}, {param, exp_avg, exp_avg_sq}, n, false};
    map(k, a, update_of(options));
}
