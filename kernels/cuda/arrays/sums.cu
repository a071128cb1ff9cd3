/* Sums: of rows, of a row's squares, and exact ones. */
#include <algorithm>

#include "cuda/common/columns.cuh"
#include "kernels/limbs.h"

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    sum_rows_kernel(float *partial, const float *x, size_t x_stride, size_t rows, unsigned dim,
                    unsigned each, bool wide) {
    const row_place<W> columns(0, 1, dim, dim % 4 == 0);
    column_sums<W> sums(partial, dim);
#pragma unroll 4
    for (unsigned i = 0; i < each; i += W::GROUPS) {
        const row_place<W> p((size_t)blockIdx.x * each + i + threadIdx.x / W::LANES, rows, dim,
                             wide);
        FOR_SPANS(W, first, dim) {
            share<W> v;
            p.load(v, x + p.row * x_stride, first);
            sums.fetch(columns, first);
            FOR_SHARE(W, u, e) sums.v[u][e] += v[u][e];
            sums.put(columns, first);
        }
        sums.begun = true;
    }
    sums.finish(columns);
}

static void cuda_sum_rows(kernels *k, float *sum, const float *x, size_t x_stride, size_t rows,
                          size_t dim) {
    if (rows <= COLUMN_ROWS) {
        cuda_columns_add(k, sum, x, x_stride, rows, dim);
        return;
    }
    const bool wide = dim % 4 == 0 && x_stride % 4 == 0 && aligned(x);
    by_width(dim, [&](auto shape) {
        typedef decltype(shape) W;
        const column_plan plan = plan_columns<W>(k, rows, dim);
        LAUNCH(k, sum_rows_kernel<W>, plan.blocks, 0, plan.partial[0], x, x_stride, rows,
               (unsigned)dim, plan.each, wide);
        cuda_columns_add(k, sum, plan.partial[0], dim, plan.blocks, dim);
    });
}

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    row_sumsq_kernel(double *out, const float *x, size_t rows, unsigned dim, bool wide) {
    const row_place<W> p(row_of_group<W>(), rows, dim, wide);
    double sum = 0.0;
    FOR_SPANS(W, first, dim) {
        share<W> v;
        p.load(v, x + p.row * dim, first);
        FOR_SHARE(W, u, e) sum += (double)v[u][e] * (double)v[u][e];
    }
    sum = group_sum<W::LANES>(sum);
    if (p.there && p.lane == 0) out[p.row] = sum;
}

static void cuda_row_sumsq(kernels *k, double *out, const float *x, size_t rows, size_t dim) {
    const bool wide = dim % 4 == 0 && aligned(x);
    by_width(dim, [&](auto shape) {
        typedef decltype(shape) W;
        LAUNCH(k, row_sumsq_kernel<W>, pieces_of(rows, W::GROUPS), 0, out, x, rows, (unsigned)dim,
               wide);
    });
}

static __device__ void add_limb(unsigned long long *limb, unsigned long long part) {
    if (part) atomicAdd(limb, part);
}

/* The smallest of a warp's. */
static __device__ unsigned warp_min(unsigned value) {
    for (int mask = WARP / 2; mask; mask /= 2)
        value = min(value, __shfl_xor_sync(~0u, value, mask));
    return value;
}

/* Numbers of similar size have the same limbs. A warp adds those up first, then the block, then
 * all. The additions are atomic and of integers, so their order does not change the sum. */
static __global__ void __launch_bounds__(THREADS)
    exact_add_kernel(unsigned long long *sum, const double *x, size_t n) {
    const unsigned NONE = KERNELS_LIMBS + 1;
    __shared__ unsigned long long block[KERNELS_LIMBS + 1];
    for (unsigned i = threadIdx.x; i <= KERNELS_LIMBS; i += THREADS) block[i] = 0;
    __syncthreads();
    const size_t warp = ((size_t)blockIdx.x * THREADS + threadIdx.x) / WARP;
    const size_t warps = (size_t)gridDim.x * THREADS / WARP;
    for (size_t first = warp * WARP; first < n; first += warps * WARP) {
        const size_t i = first + threadIdx.x % WARP;
        const bool there = i < n;
        kernels_cut cut;
        const int odd = kernels_cut_bits(there ? (uint64_t)__double_as_longlong(x[i]) : 0, &cut);
        if (odd) add_limb(block + KERNELS_LIMBS, 1);
        unsigned own = there && !odd ? cut.limb : NONE, limb;
        while ((limb = warp_min(own)) != NONE) {
            const bool mine = own == limb;
            unsigned long long parts[3] = {mine ? cut.low : 0, mine ? cut.middle : 0,
                                           mine ? cut.high : 0};
            group_sums<WARP>(parts);
            if (mine) own = NONE;
            if (threadIdx.x % WARP == 0)
                for (unsigned p = 0; p < 3; p++) add_limb(block + limb + p, parts[p]);
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i <= KERNELS_LIMBS; i += THREADS) add_limb(sum + i, block[i]);
}

static const size_t EXACT_BLOCKS = 264; /* twice a large GPU's multiprocessors */

static void cuda_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n) {
    const size_t blocks = pieces_of(n, THREADS);
    LAUNCH(k, exact_add_kernel, std::min(blocks, EXACT_BLOCKS), 0, (unsigned long long *)sum, x, n);
}

void cuda_sums_fill(kernels *k) {
    k->sum_rows = cuda_sum_rows;
    k->row_sumsq = cuda_row_sumsq;
    k->exact_add = cuda_exact_add;
}
