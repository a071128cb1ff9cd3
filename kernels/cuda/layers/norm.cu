/* RMSNorm and LayerNorm. In the forward pass, a row is read once and stays in registers unless it
 * is long. In the backward pass, a row of dout and the row of x are read once unless they are long;
 * they give a row of dx, and a contribution to the weight's gradient. A block accumulates these
 * contributions over its rows, in registers or, if rows are long, in scratch. */
#include "cuda/common/columns.cuh"

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

static void cuda_rmsnorm_forward(kernels *k, void *out, kernels_type type, float *rstd,
                                 const float *x, const float *weight, size_t rows, size_t dim,
                                 float eps) {
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

/* Computes the mean first, then the squared differences from it. Sums of x and x^2 would need only
 * one pass, but subtracting them would cancel leading digits. */
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

static void cuda_layernorm_forward(kernels *k, void *out, kernels_type type, float *mean,
                                   float *rstd, const float *x, const float *weight,
                                   const float *bias, size_t rows, size_t dim, float eps) {
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

/* The arrays that the backward kernels read, and their shape. */
typedef struct norm_rows {
    const float *dout, *x, *weight, *mean, *rstd;
    size_t rows;
    unsigned dim, each;
    bool add, wide;
} norm_rows;

/* The arrays that the backward kernels write; rounded may be NULL. dx may be dout or x: each
 * element is read only by the thread that writes it. */
typedef struct norm_results {
    float *dx;
    uint16_t *rounded;
} norm_results;

/* Stores dx at one position of the row that begins at `at`. */
template <typename W>
static __device__ __forceinline__ void put_dx(const row_place<W> &p, const norm_results &to,
                                              size_t at, share<W> &d, unsigned first, bool add) {
    if (add) {
        share<W> before;
        p.load(before, to.dx + at, first);
        FOR_SHARE(W, u, e) d[u][e] += before[u][e];
    }
    p.store(to.dx + at, d, first);
    if (to.rounded) p.store(to.rounded + at, d, first);
}

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    rmsnorm_backward_kernel(norm_results to, float *partial, norm_rows r) {
    const row_place<W> columns(0, 1, r.dim, r.wide);
    column_sums<W> dweight(partial, r.dim);
    for (unsigned i = 0; i < r.each; i += W::GROUPS) {
        const row_place<W> p((size_t)blockIdx.x * r.each + i + threadIdx.x / W::LANES, r.rows,
                             r.dim, r.wide);
        const size_t at = p.row * r.dim;
        const float scale = p.there ? r.rstd[p.row] : 0.0f;
        share<W> g, v, w;
        float sum = 0.0f;
        FOR_SPANS(W, first, r.dim) {
            p.load(g, r.dout + at, first);
            p.load(v, r.x + at, first);
            columns.load(w, r.weight, first);
            dweight.fetch(columns, first);
            FOR_SHARE(W, u, e) {
                dweight.v[u][e] += g[u][e] * (v[u][e] * scale);
                g[u][e] *= w[u][e];
                sum += g[u][e] * v[u][e];
            }
            dweight.put(columns, first);
        }
        dweight.begun = true;
        const float along = group_sum<W::LANES>(sum) / (float)r.dim * scale * scale;
        FOR_SPANS(W, first, r.dim) {
            if (!W::ONCE) {
                p.load(g, r.dout + at, first);
                p.load(v, r.x + at, first);
                columns.load(w, r.weight, first);
                FOR_SHARE(W, u, e) g[u][e] *= w[u][e];
            }
            FOR_SHARE(W, u, e) g[u][e] = scale * (g[u][e] - v[u][e] * along);
            put_dx<W>(p, to, at, g, first, r.add);
        }
    }
    dweight.finish(columns);
}

static void cuda_rmsnorm_backward(kernels *k, float *dx, uint16_t *rounded, float *dweight,
                                  const float *dout, const float *x, const float *weight,
                                  const float *rstd, size_t rows, size_t dim, unsigned flags) {
    const bool wide = dim % 4 == 0 && aligned(dx, rounded, dout, x, weight);
    by_width(dim, [&](auto shape) {
        typedef decltype(shape) W;
        const column_plan plan = plan_columns<W>(k, rows, dim);
        const norm_rows r = {
            dout, x, weight, NULL, rstd, rows, (unsigned)dim, plan.each, (flags & KERNELS_ADD) != 0,
            wide};
        LAUNCH(k, rmsnorm_backward_kernel<W>, plan.blocks, 0, norm_results{dx, rounded},
               plan.partial[0], r);
        cuda_columns_add(k, dweight, plan.partial[0], dim, plan.blocks, dim);
    });
}

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    layernorm_backward_kernel(norm_results to, float *weights, float *biases, norm_rows r) {
    const row_place<W> columns(0, 1, r.dim, r.wide);
    column_sums<W> dweight(weights, r.dim), dbias(biases, r.dim);
    for (unsigned i = 0; i < r.each; i += W::GROUPS) {
        const row_place<W> p((size_t)blockIdx.x * r.each + i + threadIdx.x / W::LANES, r.rows,
                             r.dim, r.wide);
        const size_t at = p.row * r.dim;
        const float middle = p.there ? r.mean[p.row] : 0.0f, scale = p.there ? r.rstd[p.row] : 0.0f;
        share<W> g, v, w;
        float sums[2] = {0.0f, 0.0f}; /* the sums of g and of g * xhat */
        FOR_SPANS(W, first, r.dim) {
            p.load(g, r.dout + at, first);
            p.load(v, r.x + at, first);
            columns.load(w, r.weight, first);
            dweight.fetch(columns, first);
            dbias.fetch(columns, first);
            FOR_SHARE(W, u, e) {
                v[u][e] = (v[u][e] - middle) * scale;
                dweight.v[u][e] += g[u][e] * v[u][e];
                dbias.v[u][e] += g[u][e];
                g[u][e] *= w[u][e];
                sums[0] += g[u][e];
                sums[1] += g[u][e] * v[u][e];
            }
            dweight.put(columns, first);
            dbias.put(columns, first);
        }
        dweight.begun = dbias.begun = true;
        group_sums<W::LANES>(sums);
        const float level = sums[0] / (float)r.dim, along = sums[1] / (float)r.dim;
        FOR_SPANS(W, first, r.dim) {
            if (!W::ONCE) {
                p.load(g, r.dout + at, first);
                p.load(v, r.x + at, first);
                columns.load(w, r.weight, first);
                FOR_SHARE(W, u, e) {
                    v[u][e] = (v[u][e] - middle) * scale;
                    g[u][e] *= w[u][e];
                }
            }
            FOR_SHARE(W, u, e) g[u][e] = scale * (g[u][e] - level - v[u][e] * along);
            put_dx<W>(p, to, at, g, first, r.add);
        }
    }
    dweight.finish(columns);
    dbias.finish(columns);
}

static void cuda_layernorm_backward(kernels *k, float *dx, uint16_t *rounded, float *dweight,
                                    float *dbias, const float *dout, const float *x,
                                    const float *weight, const float *mean, const float *rstd,
                                    size_t rows, size_t dim, unsigned flags) {
    const bool wide = dim % 4 == 0 && aligned(dx, rounded, dout, x, weight);
    by_width(dim, [&](auto shape) {
        typedef decltype(shape) W;
        const column_plan plan = plan_columns<W>(k, rows, dim);
        const norm_rows r = {
            dout, x, weight, mean, rstd, rows, (unsigned)dim, plan.each, (flags & KERNELS_ADD) != 0,
            wide};
        LAUNCH(k, layernorm_backward_kernel<W>, plan.blocks, 0, norm_results{dx, rounded},
               plan.partial[0], plan.partial[1], r);
        cuda_columns_add(k, dweight, plan.partial[0], dim, plan.blocks, dim);
        cuda_columns_add(k, dbias, plan.partial[1], dim, plan.blocks, dim);
    });
}

void cuda_norm_fill(kernels *k) {
    k->rmsnorm_forward = cuda_rmsnorm_forward;
    k->rmsnorm_backward = cuda_rmsnorm_backward;
    k->layernorm_forward = cuda_layernorm_forward;
    k->layernorm_backward = cuda_layernorm_backward;
}
