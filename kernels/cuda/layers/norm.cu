/* RMSNorm and LayerNorm forwards: a row is read once and stays in registers, unless it is long. */
#include "cuda/common/shares.cuh"

template <typename W, typename Out>
static __global__ void __launch_bounds__(THREADS)
    rmsnorm_forward_kernel(Out *out, float *rstd, const float *x, const float *weight, size_t rows,
                           unsigned dim, float eps, bool wide) {
    const row_place<W> p(row_of_group<W>(), rows, dim, wide);
    const float *in = x + p.row * dim;
    share<W> v, w;
    float sum = 0.0f;
    FOR_SPANS(W, first, dim) {
        p.load(v, in, first);
        if (W::ONCE) p.load(w, weight, first);
        FOR_SHARE(W, u, e) sum += v[u][e] * v[u][e];
    }
    const float scale = 1.0f / sqrtf(group_sum<W::LANES>(sum) / (float)dim + eps);
    if (p.there && p.lane == 0) rstd[p.row] = scale;
    FOR_SPANS(W, first, dim) {
        if (!W::ONCE) {
            p.load(v, in, first);
            p.load(w, weight, first);
        }
        FOR_SHARE(W, u, e) v[u][e] = w[u][e] * (v[u][e] * scale);
        p.store(out + p.row * dim, v, first);
    }
}

void cuda_rmsnorm_forward(kernels *k, void *out, kernels_type type, float *rstd, const float *x,
                          const float *weight, size_t rows, size_t dim, float eps) {
    const bool wide = dim % 4 == 0 && aligned(out, x, weight);
    by_type(type, [&](auto t) {
        typedef decltype(t) Out;
        by_width(dim, [&](auto shape) {
            typedef decltype(shape) W;
            LAUNCH(k, (rmsnorm_forward_kernel<W, Out>), pieces_of(rows, W::GROUPS), 0, (Out *)out,
                   rstd, x, weight, rows, (unsigned)dim, eps, wide);
        });
    });
}

/* The mean first, then the squares around it: one sum of both would cancel. */
template <typename W, typename Out>
static __global__ void __launch_bounds__(THREADS)
    layernorm_forward_kernel(Out *out, float *mean, float *rstd, const float *x,
                             const float *weight, const float *bias, size_t rows, unsigned dim,
                             float eps, bool wide) {
    const row_place<W> p(row_of_group<W>(), rows, dim, wide);
    const float *in = x + p.row * dim;
    share<W> v, w, b;
    float sum = 0.0f, squares = 0.0f;
    FOR_SPANS(W, first, dim) {
        p.load(v, in, first);
        FOR_SHARE(W, u, e) sum += v[u][e];
    }
    const float middle = group_sum<W::LANES>(sum) / (float)dim;
    FOR_SPANS(W, first, dim) {
        if (!W::ONCE) p.load(v, in, first);
        FOR_SHARE(W, u, e) {
            const float d = p.has(first, u, e) ? v[u][e] - middle : 0.0f;
            squares += d * d;
        }
    }
    const float scale = 1.0f / sqrtf(group_sum<W::LANES>(squares) / (float)dim + eps);
    if (p.there && p.lane == 0) {
        mean[p.row] = middle;
        rstd[p.row] = scale;
    }
    FOR_SPANS(W, first, dim) {
        if (!W::ONCE) p.load(v, in, first);
        p.load(w, weight, first);
        p.load(b, bias, first);
        FOR_SHARE(W, u, e) v[u][e] = (v[u][e] - middle) * scale * w[u][e] + b[u][e];
        p.store(out + p.row * dim, v, first);
    }
}

void cuda_layernorm_forward(kernels *k, void *out, kernels_type type, float *mean, float *rstd,
                            const float *x, const float *weight, const float *bias, size_t rows,
                            size_t dim, float eps) {
    const bool wide = dim % 4 == 0 && aligned(out, x, weight, bias);
    by_type(type, [&](auto t) {
        typedef decltype(t) Out;
        by_width(dim, [&](auto shape) {
            typedef decltype(shape) W;
            LAUNCH(k, (layernorm_forward_kernel<W, Out>), pieces_of(rows, W::GROUPS), 0, (Out *)out,
                   mean, rstd, x, weight, bias, rows, (unsigned)dim, eps, wide);
        });
    });
}
