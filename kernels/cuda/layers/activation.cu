/* Activations, alone and in gated units. */
#include "cuda/common/map.cuh"

/* An activation's value and slope at one point. */
typedef struct slope_point {
    float value, slope;
} slope_point;

/* Returns 1 / (1 + exp(-x)), to a few units in the last place; an exact division would be slow. */
static __device__ float logistic(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

template <kernels_activation F> __device__ slope_point activation_at(float x);

template <> __device__ slope_point activation_at<KERNELS_GELU>(float x) {
    float cdf = 0.5f + 0.5f * erff(x * 0.70710678f);
    return {x * cdf, cdf + x * (0.39894228f * expf(-0.5f * x * x))};
}

/* Uses the identity 1 / 2 + tanh(u) / 2 = logistic(2 u). */
template <> __device__ slope_point activation_at<KERNELS_GELU_TANH>(float x) {
    const float a = 0.79788456f, b = 0.044715f;
    float sigma = logistic(2.0f * a * (x + b * x * x * x));
    float inner = 2.0f * a * (1.0f + 3.0f * b * x * x);
    return {x * sigma, sigma + x * sigma * (1.0f - sigma) * inner};
}

template <> __device__ slope_point activation_at<KERNELS_SILU>(float x) {
    float sigma = logistic(x);
    return {x * sigma, sigma * (1.0f + x * (1.0f - sigma))};
}

/* The comparison is such that NaN stays NaN. */
template <> __device__ slope_point activation_at<KERNELS_RELU>(float x) {
    return {x < 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f};
}

/* A type that stands for the activation F. */
template <kernels_activation F> struct activation {
    static __device__ slope_point at(float x) { return activation_at<F>(x); }
};

/* Calls `call` with a value of the arrays' type T, and with a value whose type stands for the
 * activation f. So each pair of a type and an activation has its own kernel. */
template <typename T, typename Call> static void by_activation(kernels_activation f, Call call) {
    switch (f) {
    case KERNELS_RELU:
        return call(T(), activation<KERNELS_RELU>());
    case KERNELS_GELU:
        return call(T(), activation<KERNELS_GELU>());
    case KERNELS_GELU_TANH:
        return call(T(), activation<KERNELS_GELU_TANH>());
    default:
        return call(T(), activation<KERNELS_SILU>());
    }
}

template <typename Call>
static void by_type_and_activation(kernels_type type, kernels_activation f, Call call) {
    by_type(type, [&](auto t) { by_activation<decltype(t)>(f, call); });
}

template <typename F> struct value_of {
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
        y[0] = F::at(x[0]).value;
    }
};

static void cuda_activation_forward(kernels *k, void *out, const void *x, size_t n,
                                    kernels_activation f, kernels_type type) {
    by_type_and_activation(type, f, [&](auto t, auto a) {
        typedef decltype(t) T;
        map(k, map_arrays<T, T, 1, 1>{{(const T *)x}, {(T *)out}, n, false},
            value_of<decltype(a)>());
    });
}

/* x: dout, then the activation's input. */
template <typename F> struct slope_of {
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
        y[0] = x[0] * F::at(x[1]).slope;
    }
};

/* x: dout, then the activation's input. y: dx, then the activation's value. */
template <typename F> struct slope_and_value_of {
    __device__ void operator()(const float (&x)[2], float (&y)[2]) const {
        const slope_point at = F::at(x[1]);
        y[0] = x[0] * at.slope;
        y[1] = at.value;
    }
};

static void cuda_activation_backward(kernels *k, void *out, void *dx, const void *dout,
                                     const void *x, size_t n, kernels_activation f,
                                     kernels_type type) {
    by_type_and_activation(type, f, [&](auto t, auto a) {
        typedef decltype(t) T;
        const T *d = (const T *)dout, *in = (const T *)x;
        if (out)
            map(k, map_arrays<T, T, 2, 2>{{d, in}, {(T *)dx, (T *)out}, n, false},
                slope_and_value_of<decltype(a)>());
        else
            map(k, map_arrays<T, T, 2, 1>{{d, in}, {(T *)dx}, n, false}, slope_of<decltype(a)>());
    });
}

/* x: gate, up. */
template <typename F> struct gated {
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
        y[0] = F::at(x[0]).value * x[1];
    }
};

static void cuda_gated_forward(kernels *k, void *out, const void *gate, const void *up, size_t n,
                               kernels_activation f, kernels_type type) {
    by_type_and_activation(type, f, [&](auto t, auto a) {
        typedef decltype(t) T;
        map(k, map_arrays<T, T, 2, 1>{{(const T *)gate, (const T *)up}, {(T *)out}, n, false},
            gated<decltype(a)>());
    });
}

/* x: dout, gate, up; y: dgate, dup, out. */
template <typename F> struct gated_slopes {
    __device__ void operator()(const float (&x)[3], float (&y)[3]) const {
        const slope_point at = F::at(x[1]);
        y[0] = x[0] * x[2] * at.slope;
        y[1] = x[0] * at.value;
        y[2] = at.value * x[2];
    }
};

static void cuda_gated_backward(kernels *k, void *out, void *dgate, void *dup, const void *dout,
                                const void *gate, const void *up, size_t n, kernels_activation f,
                                kernels_type type) {
    by_type_and_activation(type, f, [&](auto t, auto a) {
        typedef decltype(t) T;
        const map_arrays<T, T, 3, 3> arrays = {{(const T *)dout, (const T *)gate, (const T *)up},
                                               {(T *)dgate, (T *)dup, (T *)out},
                                               n,
                                               false};
        map(k, arrays, gated_slopes<decltype(a)>());
    });
}

void cuda_activation_fill(kernels *k) {
    k->activation_forward = cuda_activation_forward;
    k->activation_backward = cuda_activation_backward;
    k->gated_forward = cuda_gated_forward;
    k->gated_backward = cuda_gated_backward;
}
