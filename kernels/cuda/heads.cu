/* Heads between their projection and attention: RMSNorm of each, and rotary positions, by which a
 * head's first and second half turn against each other. */
#include "device.cuh"

/* A block's token and head. */
struct head_place {
    size_t at;                  /* its first element */
    const float *cosine, *sine; /* of its token; NULL: no turn */
};

static __device__ head_place head_of(const kernels_heads &h) {
    const size_t angle = blockIdx.x / h.heads % h.sequence * (h.dim / 2);
    if (!h.cosines) return {blockIdx.x * h.dim, nullptr, nullptr};
    return {blockIdx.x * h.dim, h.cosines + angle, h.sines + angle};
}

/* Where element i's partner in its pair stands, and the sine as element i has it. */
static __device__ size_t partner(const kernels_heads &h, size_t i) {
    return i < h.dim / 2 ? i + h.dim / 2 : i - h.dim / 2;
}

/* values[i] turned: sign 1 forwards, -1 back. */
static __device__ float turned(const kernels_heads &h, const head_place &p, const float *values,
                               size_t i, float sign) {
    if (!p.cosine) return values[i];
    const size_t half = h.dim / 2, angle = i < half ? i : i - half;
    const float s = sign * p.sine[angle];
    return values[i] * p.cosine[angle] + (i < half ? -s : s) * values[partner(h, i)];
}

template <typename T> static __device__ float rstd_of(const kernels_heads &h, const T *x) {
    float sum = 0.0f;
    for (size_t i = threadIdx.x; i < h.dim; i += THREADS) sum += load(x + i) * load(x + i);
    return 1.0f / sqrtf(block_sum(sum) / (float)h.dim + h.eps);
}

/* Shared: the head [dim]. */
template <typename T>
static __global__ void heads_forward_kernel(kernels_heads h, T *out, const T *x) {
    const head_place p = head_of(h);
    float *values = dynamic_shared();
    const float scale = h.weight ? rstd_of(h, x + p.at) : 1.0f;
    for (size_t i = threadIdx.x; i < h.dim; i += THREADS) {
        const float v = load(x + p.at + i);
        values[i] = h.weight ? h.weight[i] * (v * scale) : v;
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < h.dim; i += THREADS)
        store(out + p.at + i, turned(h, p, values, i, 1.0f));
}

void cuda_heads_forward(kernels *k, const kernels_heads *h, void *out, const void *x) {
    const size_t heads = h->batch * h->sequence * h->heads, shared = h->dim * sizeof(float);
    if (h->type == KERNELS_BF16)
        LAUNCH(k, heads_forward_kernel<uint16_t>, heads, shared, *h, (uint16_t *)out,
               (const uint16_t *)x);
    else
        LAUNCH(k, heads_forward_kernel<float>, heads, shared, *h, (float *)out, (const float *)x);
}

/* A thread owns an element of the weight and goes through all heads. */
template <typename T>
static __global__ void heads_dweight_kernel(kernels_heads h, float *dweight, const float *dout,
                                            const T *x, size_t heads) {
    const size_t i = blockIdx.x;
    float sum = 0.0f;
    for (size_t head = threadIdx.x; head < heads; head += THREADS) {
        const float *d = dout + head * h.dim;
        const T *in = x + head * h.dim;
        float squares = 0.0f, back = d[i];
        for (size_t j = 0; j < h.dim; j++) squares += load(in + j) * load(in + j);
        if (h.cosines) {
            const size_t half = h.dim / 2, angle = head / h.heads % h.sequence * half + i % half;
            const float s = h.sines[angle];
            back = back * h.cosines[angle] + (i < half ? s : -s) * d[partner(h, i)];
        }
        sum += back * (load(in + i) * (1.0f / sqrtf(squares / (float)h.dim + h.eps)));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) dweight[i] += sum;
}

/* Shared: the gradient of what was normed [dim]. */
template <typename T>
static __global__ void heads_dx_kernel(kernels_heads h, T *dx, const float *dout, const T *x) {
    const head_place p = head_of(h);
    float *values = dynamic_shared(), *back = values + h.dim, sum = 0.0f;
    for (size_t i = threadIdx.x; i < h.dim; i += THREADS) values[i] = dout[p.at + i];
    __syncthreads();
    for (size_t i = threadIdx.x; i < h.dim; i += THREADS) {
        back[i] = turned(h, p, values, i, -1.0f);
        if (h.weight) sum += back[i] * h.weight[i] * load(x + p.at + i);
    }
    const float scale = h.weight ? rstd_of(h, x + p.at) : 1.0f;
    const float share = h.weight ? block_sum(sum) / (float)h.dim * scale * scale : 0.0f;
    for (size_t i = threadIdx.x; i < h.dim; i += THREADS)
        store(dx + p.at + i,
              h.weight ? scale * (back[i] * h.weight[i] - load(x + p.at + i) * share) : back[i]);
}

template <typename T>
static void backward(kernels *k, const kernels_heads &h, T *dx, float *dweight, const float *dout,
                     const T *x) {
    const size_t heads = h.batch * h.sequence * h.heads;
    if (h.weight) LAUNCH(k, heads_dweight_kernel<T>, h.dim, 0, h, dweight, dout, x, heads);
    LAUNCH(k, heads_dx_kernel<T>, heads, 2 * h.dim * sizeof(float), h, dx, dout, x);
}

/* The weight's gradient first: dx may take the place of dout or x. */
void cuda_heads_backward(kernels *k, const kernels_heads *h, void *dx, float *dweight,
                         const float *dout, const void *x) {
    if (h->type == KERNELS_BF16)
        backward(k, *h, (uint16_t *)dx, dweight, dout, (const uint16_t *)x);
    else
        backward(k, *h, (float *)dx, dweight, dout, (const float *)x);
}
