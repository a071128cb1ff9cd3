/* Kernels that move rows: copies, embeddings forward, patches of images. */
#include "cuda/common/shares.cuh"

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

/* A block copies a part. */
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

/* A block copies a patch, row by row as they stand in the image. */
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
