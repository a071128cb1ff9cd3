/* Heads between their projection and attention: RMSNorm of each head, and rotary positions. A
 * rotation combines element i of the first half with element i of the second half; one thread holds
 * both. A head with an odd number of elements has no rotation, and its first half is the longer
 * one. */
#include "cuda/common/columns.cuh"

static __host__ __device__ unsigned first_half(const kernels_heads &h) {
    return (unsigned)(h.dim - h.dim / 2);
}

/* Calls f with the row_shape that suits halves of `dim` elements. Few models have halves that are
 * too long for a warp. */
template <typename F> static void by_half(size_t dim, F f) {
    if (dim <= 64)
        f(row_shape<16, 1, true>());
    else if (dim <= 128)
        f(row_shape<32, 1, true>());
    else
        f(row_shape<THREADS, 1, false>());
}

/* A thread's elements of a head's two halves. */
template <typename W> using two_shares = share<W>[2];

#define FOR_HALVES(W, half, u, e)                                                                  \
    _Pragma("unroll") for (unsigned half = 0; half < 2; half++) FOR_SHARE(W, u, e)

/* A thread's position in a head, or in another array with the same number of columns. */
template <typename W> struct head_place {
    row_place<W> half[2];
    unsigned second; /* where the second half begins */

    __device__ __forceinline__ head_place(const kernels_heads &h, size_t row, size_t rows,
                                          bool wide)
        : half{{row, rows, first_half(h), wide}, {row, rows, (unsigned)(h.dim / 2), wide}},
          second(first_half(h)) {}

    template <typename T>
    __device__ __forceinline__ void load(two_shares<W> &v, const T *x, unsigned first) const {
        half[0].load(v[0], x, first);
        half[1].load(v[1], x + second, first);
    }
    template <typename T>
    __device__ __forceinline__ void store(T *y, const two_shares<W> &v, unsigned first) const {
        half[0].store(y, v[0], first);
        half[1].store(y + second, v[1], first);
    }

    /* Rotates by the angles of the head's token; sign -1 rotates back. */
    __device__ __forceinline__ void turn(two_shares<W> &v, const kernels_heads &h, unsigned first,
                                         float sign) const {
        if (!h.cosines) return;
        const unsigned token = (unsigned)half[0].row / (unsigned)h.heads;
        const bool placed = h.places && half[0].there;
        const size_t angles = placed ? (unsigned)h.places[token] : token % (unsigned)h.sequence;
        share<W> c, s;
        half[0].load(c, h.cosines + angles * second, first);
        half[0].load(s, h.sines + angles * second, first);
        FOR_SHARE(W, u, e) {
            const float low = v[0][u][e], high = v[1][u][e], sine = sign * s[u][e];
            v[0][u][e] = fmaf(low, c[u][e], -(high * sine));
            v[1][u][e] = fmaf(high, c[u][e], low * sine);
        }
    }
};

template <typename W, typename T>
static __global__ void __launch_bounds__(THREADS)
    heads_forward_kernel(kernels_heads h, T *out, const T *x, size_t rows, bool wide) {
    const head_place<W> p(h, row_of_group<W>(), rows, wide);
    const size_t at = p.half[0].row * h.dim;
    two_shares<W> v, w;
    float scale = 0.0f;
    if (h.weight) {
        float sum = 0.0f;
        FOR_SPANS(W, first, p.second) {
            p.load(v, x + at, first);
            FOR_HALVES(W, half, u, e) sum += v[half][u][e] * v[half][u][e];
        }
        scale = 1.0f / sqrtf(group_sum<W::LANES>(sum) / (float)h.dim + h.eps);
    }
    FOR_SPANS(W, first, p.second) {
        if (!W::ONCE || !h.weight) p.load(v, x + at, first);
        if (h.weight) {
            p.load(w, h.weight, first);
            FOR_HALVES(W, half, u, e) v[half][u][e] = w[half][u][e] * (v[half][u][e] * scale);
        }
        p.turn(v, h, first, 1.0f);
        p.store(out + at, v, first);
    }
}

/* Returns true if all arrays are aligned to 16 bytes, and both halves are multiples of 4
 * elements. */
static bool is_wide(const kernels_heads &h, const void *a, const void *b, const void *c) {
    return h.dim % 8 == 0 && aligned(a, b, c, h.weight, h.cosines, h.sines);
}

static void cuda_heads_forward(kernels *k, const kernels_heads *h, void *out, const void *x) {
    const size_t rows = h->batch * h->sequence * h->heads;
    by_type(h->type, [&](auto t) {
        typedef decltype(t) T;
        by_half(first_half(*h), [&](auto shape) {
            typedef decltype(shape) W;
            LAUNCH(k, (heads_forward_kernel<W, T>), pieces_of(rows, W::GROUPS), 0, *h, (T *)out,
                   (const T *)x, rows, is_wide(*h, out, x, NULL));
        });
    });
}

/* Loads g, the incoming gradient rotated back, and v, the input of the forward pass. */
template <typename W, typename T>
static __device__ __forceinline__ void
load_gradient(two_shares<W> &g, two_shares<W> &v, two_shares<W> &w, const head_place<W> &p,
              const kernels_heads &h, const float *dout, const T *x, unsigned first) {
    p.load(g, dout, first);
    if (h.weight) {
        p.load(v, x, first);
        p.load(w, h.weight, first);
    }
    p.turn(g, h, first, -1.0f);
}

/* each: the number of rows per block. */
template <typename W, typename T>
static __global__ void __launch_bounds__(THREADS)
    heads_backward_kernel(kernels_heads h, T *dx, float *partial, const float *dout, const T *x,
                          size_t rows, unsigned each, bool wide) {
    const head_place<W> columns(h, 0, 1, wide);
    column_sums<W> dweight[2] = {{partial, (unsigned)h.dim},
                                 {partial + columns.second, (unsigned)h.dim}};
    for (unsigned i = 0; i < each; i += W::GROUPS) {
        const head_place<W> p(h, (size_t)blockIdx.x * each + i + threadIdx.x / W::LANES, rows,
                              wide);
        const size_t at = p.half[0].row * h.dim;
        two_shares<W> g, v = {}, w = {};
        float sums[2] = {0.0f, 0.0f}; /* the sums of x^2 and of g * w * v */
        FOR_SPANS(W, first, p.second) {
            load_gradient(g, v, w, p, h, dout + at, x + at, first);
            FOR_HALVES(W, half, u, e) {
                sums[0] += v[half][u][e] * v[half][u][e];
                sums[1] += g[half][u][e] * w[half][u][e] * v[half][u][e];
            }
        }
        if (h.weight) group_sums<W::LANES>(sums);
        const float scale = p.half[0].there ? 1.0f / sqrtf(sums[0] / (float)h.dim + h.eps) : 0.0f;
        const float along = sums[1] / (float)h.dim * scale * scale;
        FOR_SPANS(W, first, p.second) {
            if (!W::ONCE) load_gradient(g, v, w, p, h, dout + at, x + at, first);
            if (h.weight) {
                for (unsigned half = 0; half < 2; half++)
                    dweight[half].fetch(columns.half[half], first);
                FOR_HALVES(W, half, u, e) {
                    const float d = g[half][u][e];
                    dweight[half].v[u][e] += d * (v[half][u][e] * scale);
                    g[half][u][e] = scale * fmaf(d, w[half][u][e], -(v[half][u][e] * along));
                }
                for (unsigned half = 0; half < 2; half++)
                    dweight[half].put(columns.half[half], first);
            }
            p.store(dx + at, g, first);
        }
        dweight[0].begun = dweight[1].begun = true;
    }
    if (h.weight)
        for (unsigned half = 0; half < 2; half++) dweight[half].finish(columns.half[half]);
}

/* dx may be x or dout: each element is read only by the thread that writes it. */
static void cuda_heads_backward(kernels *k, const kernels_heads *h, void *dx, float *dweight,
                                const float *dout, const void *x) {
    const size_t rows = h->batch * h->sequence * h->heads;
    by_type(h->type, [&](auto t) {
        typedef decltype(t) T;
        by_half(first_half(*h), [&](auto shape) {
            typedef decltype(shape) W;
            column_plan plan = {W::GROUPS, pieces_of(rows, W::GROUPS), {}};
            if (h->weight) plan = plan_columns<W>(k, rows, h->dim);
            LAUNCH(k, (heads_backward_kernel<W, T>), plan.blocks, 0, *h, (T *)dx, plan.partial[0],
                   dout, (const T *)x, rows, plan.each, is_wide(*h, dx, dout, x));
            if (h->weight)
                cuda_columns_add(k, dweight, plan.partial[0], h->dim, plan.blocks, h->dim);
        });
    });
}

void cuda_heads_fill(kernels *k) {
    k->heads_forward = cuda_heads_forward;
    k->heads_backward = cuda_heads_backward;
}
