/* A block computes SIDE x SIDE elements, one per thread, from tiles of the operands in shared
 * memory. This is slow compared with cuBLASLt. This kernel exists so that a shape for which
 * cuBLASLt has no algorithm does not end a run. */
#include "cuda/products/simple.h"

#include "cuda/common/device.cuh"

enum { SIDE = 16 };

/* The layout of an operand: element (row, col) is at row * down + col * across. */
typedef struct strides {
    size_t down, across;
} strides;

typedef struct product_size {
    size_t m, n, depth;
} product_size;

template <typename T>
static __device__ float element(const T *x, strides s, size_t row, size_t col, size_t rows,
                                size_t cols) {
    return row < rows && col < cols ? load(x + row * s.down + col * s.across) : 0.0f;
}

template <typename T, typename C>
static __global__ void __launch_bounds__(THREADS)
    product_kernel(C *c, const T *a, const T *b, product_size e, strides of_a, strides of_b,
                   bool adds) {
    __shared__ float left[SIDE][SIDE + 1], right[SIDE][SIDE + 1];
    const size_t across = (e.n + SIDE - 1) / SIDE, x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    const size_t row = blockIdx.x / across * SIDE + y, col = blockIdx.x % across * SIDE + x;
    float sum = 0.0f;
    for (size_t first = 0; first < e.depth; first += SIDE) {
        left[y][x] = element(a, of_a, row, first + x, e.m, e.depth);
        right[y][x] = element(b, of_b, first + y, col, e.depth, e.n);
        __syncthreads();
        for (unsigned i = 0; i < SIDE; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    if (row >= e.m || col >= e.n) return;
    C *to = c + row * e.n + col;
    store(to, adds ? load(to) + sum : sum);
}

void cuda_product_simple(kernels *k, void *c, const void *a, const void *b, size_t m, size_t n,
                         size_t depth, kernels_type operands, unsigned flags) {
    static_assert(SIDE * SIDE == THREADS, "a thread for each element");
    const product_size e = {m, n, depth};
    const strides of_a = flags & KERNELS_TRANSPOSE_A ? strides{1, m} : strides{depth, 1},
                  of_b = flags & KERNELS_TRANSPOSE_B ? strides{1, depth} : strides{n, 1};
    const size_t blocks = pieces_of(m, SIDE) * pieces_of(n, SIDE);
    const bool adds = (flags & KERNELS_ADD) != 0;
    by_type(operands, [&](auto operand) {
        typedef decltype(operand) T;
        by_type(flags & KERNELS_NARROW ? KERNELS_BF16 : KERNELS_F32, [&](auto result) {
            typedef decltype(result) C;
            LAUNCH(k, (product_kernel<T, C>), blocks, 0, (C *)c, (const T *)a, (const T *)b, e,
                   of_a, of_b, adds);
        });
    });
}
