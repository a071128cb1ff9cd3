/* Sums over rows, in two steps. First each block adds up its rows, in registers if a row fits, and
 * writes one row of partial sums to scratch. Then the partial sums are added up. The number of rows
 * per block depends only on the shape. */
#pragma once

#include "cuda/common/shares.cuh"

/* The most blocks, each of which writes one row of partial sums: few enough for one step to add up
 * their rows, and enough to fill a large GPU. */
enum { COLUMN_ROWS = 1024 };

/* sum[dim] += the rows of x, in one step. */
void cuda_columns_add(kernels *k, float *sum, const float *x, size_t x_stride, size_t rows,
                      size_t dim);

typedef struct column_plan {
    unsigned each; /* rows per block, a multiple of the groups in a block */
    size_t blocks;
    float *partial[2]; /* [blocks,dim] in the workspace */
} column_plan;

/* Plans one or two sums over rows of `dim` elements. */
template <typename W> static column_plan plan_columns(kernels *k, size_t rows, size_t dim) {
    const size_t room = CUDA_WORKSPACE / sizeof(float) / 2 / dim;
    size_t most = dim <= 512 ? COLUMN_ROWS : COLUMN_ROWS / 2;
    if (most > room) most = room;
    if (!most) {
        cuda_check(k, cudaErrorInvalidValue); /* only with millions of columns, which no model
                                               * has */
        return {};
    }
    column_plan p;
    const size_t each = pieces_of(pieces_of(rows, most), W::GROUPS);
    p.each = (unsigned)((each > 2 ? each : 2) * W::GROUPS);
    p.blocks = rows ? pieces_of(rows, p.each) : 0;
    p.partial[0] = (float *)cuda_of(k)->workspace;
    p.partial[1] = p.partial[0] + p.blocks * dim;
    return p;
}

/* A thread's sums of its columns. If a row has several spans, a thread stores its sums in scratch
 * after each span; no other thread accesses them there. */
template <typename W> struct column_sums {
    float *own; /* [dim] the block's sums */
    share<W> v;
    bool begun;

    __device__ __forceinline__ column_sums(float *partial, unsigned dim)
        : own(partial + (size_t)blockIdx.x * dim), begun(false) {
        FOR_SHARE(W, u, e) v[u][e] = 0.0f;
    }
    /* Loads the sums of a span. c: the thread's position in a row of sums. */
    __device__ __forceinline__ void fetch(const row_place<W> &c, unsigned first) {
        if (W::ONCE) return;
        if (begun) {
            c.load(v, own, first);
            return;
        }
        FOR_SHARE(W, u, e) v[u][e] = 0.0f;
    }
    __device__ __forceinline__ void put(const row_place<W> &c, unsigned first) {
        if (!W::ONCE) c.store(own, v, first);
    }
    /* Adds up the sums of the block's groups, in order, and stores the result. All threads of the
     * block must call this function. */
    __device__ __forceinline__ void finish(const row_place<W> &c) {
        if constexpr (W::GROUPS > 1) {
            __shared__ __align__(16) float part[W::GROUPS][W::SPAN];
            store_share<W::LANES>(part[threadIdx.x / W::LANES], v, c.lane, W::SPAN, true);
            __syncthreads();
            for (unsigned i = threadIdx.x; i < c.dim; i += THREADS) {
                float sum = part[0][i];
                for (unsigned g = 1; g < W::GROUPS; g++) sum += part[g][i];
                own[i] = sum;
            }
            __syncthreads();
        } else if (W::ONCE) {
            c.store(own, v, 0);
        }
    }
};
