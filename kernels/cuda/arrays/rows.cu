/* Kernels that move rows: copies, the forward pass of embeddings, patches of images. */
#include <algorithm>

#include "cuda/common/columns.cuh"
#include "cuda/common/shares.cuh"
#include "kernels/limbs.h"

template <typename W>
static __device__ __forceinline__ void copy_row(const row_place<W> &p, float *to, const float *from,
                                                unsigned dim, bool add) {
    FOR_SPANS(W, first, dim) {
        share<W> v, before;
        p.load(v, from, first);
        if (add) {
            p.load(before, to, first);
            FOR_SHARE(W, u, e) v[u][e] = before[u][e] + v[u][e];
        }
        p.store(to, v, first);
    }
}

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    copy_rows_kernel(float *y, size_t y_stride, const float *x, size_t x_stride, size_t rows,
                     unsigned dim, bool add, bool wide) {
    const row_place<W> p(row_of_group<W>(), rows, dim, wide);
    copy_row<W>(p, y + p.row * y_stride, x + p.row * x_stride, dim, add);
}

static void cuda_copy_rows(kernels *k, float *y, size_t y_stride, const float *x, size_t x_stride,
                           size_t rows, size_t dim, unsigned flags) {
    const bool wide = (dim | y_stride | x_stride) % 4 == 0 && aligned(y, x);
    by_width(dim, [&](auto shape) {
        typedef decltype(shape) W;
        LAUNCH(k, copy_rows_kernel<W>, pieces_of(rows, W::GROUPS), 0, y, y_stride, x, x_stride,
               rows, (unsigned)dim, (flags & KERNELS_ADD) != 0, wide);
    });
}

/* Each block copies one part. */
static __global__ void __launch_bounds__(THREADS)
    copy_parts_kernel(float *y, const float *x, const kernels_part *parts) {
    const kernels_part p = parts[blockIdx.x];
    float *to = y + p.to;
    const float *from = x + p.from;
    if (((uintptr_t)to | (uintptr_t)from | p.n * sizeof *to) % sizeof(float4) == 0) {
        for (size_t i = threadIdx.x; i < p.n / 4; i += THREADS)
            ((float4 *)to)[i] = ((const float4 *)from)[i];
        return;
    }
    for (size_t i = threadIdx.x; i < p.n; i += THREADS) to[i] = from[i];
}

static void cuda_copy_parts(kernels *k, float *y, const float *x, const kernels_part *parts,
                            size_t n) {
    LAUNCH(k, copy_parts_kernel, n, 0, y, x, parts);
}

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    embedding_forward_kernel(float *out, const float *table, const int32_t *ids, size_t rows,
                             unsigned dim, bool add, bool round, bool wide) {
    const row_place<W> p(row_of_group<W>(), rows, dim, wide);
    const int32_t id = p.there ? ids[p.row] : 0;
    const float *from = table + (id < 0 ? 0 : (size_t)id * dim);
    float *to = out + p.row * dim;
    FOR_SPANS(W, first, dim) {
        share<W> v, before;
        p.load(v, from, first);
        if (add) p.load(before, to, first);
        FOR_SHARE(W, u, e) {
            const float value = id < 0 ? 0.0f : round ? rounded_to_bf16(v[u][e]) : v[u][e];
            v[u][e] = add ? before[u][e] + value : value;
        }
        if (id >= 0 || !add) p.store(to, v, first);
    }
}

static void cuda_embedding_forward(kernels *k, float *out, const float *table, const int32_t *ids,
                                   size_t rows, size_t dim, unsigned flags) {
    const bool wide = dim % 4 == 0 && aligned(out, table);
    by_width(dim, [&](auto shape) {
        typedef decltype(shape) W;
        LAUNCH(k, embedding_forward_kernel<W>, pieces_of(rows, W::GROUPS), 0, out, table, ids, rows,
               (unsigned)dim, (flags & KERNELS_ADD) != 0, (flags & KERNELS_ROUND) != 0, wide);
    });
}

/* Each block copies one patch, row by row. */
static __global__ void patches_kernel(float *out, const float *images, kernels_patches s,
                                      unsigned across, unsigned down) {
    const unsigned width = (unsigned)s.patch_width, height = (unsigned)s.patch_height;
    const unsigned patch = blockIdx.x, n = (unsigned)s.channels * height * width;
    const size_t row = patch / across % down * height, column = patch % across * width;
    const size_t plane = patch / (across * down) * s.channels;
    for (unsigned i = threadIdx.x; i < n; i += THREADS) {
        const unsigned line = i / width, channel = line / height, y = line % height;
        const size_t from = ((plane + channel) * s.height + row + y) * s.width + column;
        out[(size_t)patch * n + i] = images[from + i % width];
    }
}

static void cuda_patches(kernels *k, float *out, const float *images,
                         const kernels_patches *shape) {
    const size_t across = shape->width / shape->patch_width;
    const size_t down = shape->height / shape->patch_height;
    LAUNCH(k, patches_kernel, shape->batch * across * down, 0, out, images, *shape,
           (unsigned)across, (unsigned)down);
}

void cuda_rows_fill(kernels *k) {
    k->copy_rows = cuda_copy_rows;
    k->copy_parts = cuda_copy_parts;
    k->embedding_forward = cuda_embedding_forward;
    k->patches = cuda_patches;
}

/* Sums over rows, sums of the squares in a row, and exact sums. */

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

/* Returns the smallest value in a warp. */
static __device__ unsigned warp_min(unsigned value) {
    for (int mask = WARP / 2; mask; mask /= 2)
        value = min(value, __shfl_xor_sync(~0u, value, mask));
    return value;
}

/* Numbers of similar size are added to the same limbs. To avoid many atomic additions to one limb,
 * a warp first adds up its numbers that have the same limbs. Then each block adds up the sums of
 * its warps, and adds the block's sum to the result. All additions are of integers, so their order
 * does not change the sum. */
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

static const size_t EXACT_BLOCKS = 264; /* twice a large GPU's number of multiprocessors */

static void cuda_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n) {
    const size_t blocks = pieces_of(n, THREADS);
    LAUNCH(k, exact_add_kernel, std::min(blocks, EXACT_BLOCKS), 0, (unsigned long long *)sum, x, n);
}

void cuda_sums_fill(kernels *k) {
    k->sum_rows = cuda_sum_rows;
    k->row_sumsq = cuda_row_sumsq;
    k->exact_add = cuda_exact_add;
}
