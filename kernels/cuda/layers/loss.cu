/* Cross-entropy: one block per row, since rows are long. */
#include "cuda/common/shares.cuh"

typedef row_shape<THREADS, 4, false> row_of_logits;

/* The largest logit of a thread so far, and the sum of exp(logit - most). */
typedef struct softmax_part {
    float most, sum;
} softmax_part;

/* Returns the number to subtract from logits: the largest logit, or 0 if all logits are -infinity
 * or NaN; exp then gives 0 or NaN. */
static __device__ float floor_of(float most) { return most == -INFINITY ? 0.0f : most; }

/* Online softmax (Milakov and Gimelshein 2018): when the largest logit so far grows, the sum so far
 * is scaled down. */
static __device__ void add_logits(softmax_part *s, const share<row_of_logits> &v) {
    float most = s->most, sum = 0.0f;
    FOR_SHARE(row_of_logits, u, e) most = fmaxf(most, v[u][e]);
    const float base = floor_of(most);
    FOR_SHARE(row_of_logits, u, e) sum += expf(v[u][e] - base);
    s->sum = s->sum * expf(s->most - base) + sum;
    s->most = most;
}

/* Excludes elements past the row's end from the sum. */
static __device__ void leave_out(share<row_of_logits> &v, const row_place<row_of_logits> &p,
                                 unsigned first) {
    FOR_SHARE(row_of_logits, u, e) v[u][e] = p.has(first, u, e) ? v[u][e] : -INFINITY;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_forward_kernel(double *losses, float *lse, const T *logits,
                                 const int32_t *targets, unsigned vocab, bool wide) {
    typedef row_of_logits W;
    const size_t row = blockIdx.x;
    const T *x = logits + row * vocab;
    const row_place<W> p(0, 1, vocab, wide);
    softmax_part own = {-INFINITY, 0.0f};
    FOR_SPANS(W, first, vocab) {
        share<W> v;
        p.load(v, x, first);
        if (first + W::SPAN > vocab) leave_out(v, p, first);
        add_logits(&own, v);
    }
    const float most = block_max(own.most);
    const float sum = block_sum(own.sum * expf(own.most - floor_of(most)));
    if (threadIdx.x) return;
    const double log_sum = (double)most + log((double)sum);
    const int32_t target = targets[row];
    lse[row] = (float)log_sum;
    losses[row] = target == KERNELS_IGNORE ? 0.0 : log_sum - (double)load(x + target);
}

static void cuda_cross_entropy_forward(kernels *k, double *losses, float *lse, const void *logits,
                                       kernels_type type, const int32_t *targets, size_t rows,
                                       size_t vocab) {
    const bool wide = vocab % 4 == 0 && aligned(logits);
    by_type(type, [&](auto t) {
        typedef decltype(t) T;
        LAUNCH(k, cross_entropy_forward_kernel<T>, rows, 0, losses, lse, (const T *)logits, targets,
               (unsigned)vocab, wide);
    });
}

/* dlogits may be logits: each element is read only by the thread that writes it. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_backward_kernel(T *dlogits, const T *logits, const float *lse,
                                  const int32_t *targets, unsigned vocab, float scale, bool wide) {
    typedef row_of_logits W;
    const size_t row = blockIdx.x, at = row * vocab;
    const row_place<W> p(0, 1, vocab, wide);
    const int32_t target = targets[row];
    const float log_sum = lse[row];
    FOR_SPANS(W, first, vocab) {
        share<W> v;
        p.load(v, logits + at, first);
        FOR_SHARE(W, u, e) {
            const unsigned i = first + (u * W::LANES + p.lane) * W::EACH + e;
            float d = scale * expf(v[u][e] - log_sum);
            d -= i == (unsigned)target ? scale : 0.0f;
            v[u][e] = target == KERNELS_IGNORE ? 0.0f : d;
        }
        p.store(dlogits + at, v, first);
    }
}

static void cuda_cross_entropy_backward(kernels *k, void *dlogits, const void *logits,
                                        kernels_type type, const float *lse, const int32_t *targets,
                                        size_t rows, size_t vocab, float scale) {
    const bool wide = vocab % 4 == 0 && aligned(dlogits, logits);
    by_type(type, [&](auto t) {
        typedef decltype(t) T;
        LAUNCH(k, cross_entropy_backward_kernel<T>, rows, 0, (T *)dlogits, (const T *)logits, lse,
               targets, (unsigned)vocab, scale, wide);
    });
}

void cuda_loss_fill(kernels *k) {
    k->cross_entropy_forward = cuda_cross_entropy_forward;
    k->cross_entropy_backward = cuda_cross_entropy_backward;
}
