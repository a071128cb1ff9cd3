/* Sums over rows in one step. */
#include "cuda/common/columns.cuh"

/* For few rows: each thread adds up one column. */
static __global__ void __launch_bounds__(THREADS)
    few_rows_kernel(float *sum, const float *x, size_t x_stride, unsigned rows, size_t dim) {
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= dim) return;
    float total = 0.0f;
#pragma unroll 8
    for (unsigned row = 0; row < rows; row++) total += x[row * x_stride + i];
    sum[i] += total;
}

/* For more rows: a block owns COLUMNS columns, as many floats as one memory access reads. Lane l
 * adds up rows l, l + LANES, and so on. Then the lanes are added, in an order that depends only on
 * `rows`. */
enum { COLUMNS = 8, LANES = 128, COLUMN_THREADS = COLUMNS * LANES, FEW_ROWS = 32 };

/* Returns the column's sum, on the column's first lane. All threads of the block must call this
 * function. */
static __device__ float column_sum(float value) {
    __shared__ float part[COLUMN_THREADS / WARP][COLUMNS];
    for (int mask = WARP / 2; mask >= COLUMNS; mask /= 2)
        value += __shfl_xor_sync(~0u, value, mask);
    if (threadIdx.x % WARP < COLUMNS) part[threadIdx.x / WARP][threadIdx.x % WARP] = value;
    __syncthreads();
    if (threadIdx.x >= COLUMNS) return 0.0f;
    float sum = 0.0f;
#pragma unroll
    for (unsigned w = 0; w < COLUMN_THREADS / WARP; w++) sum += part[w][threadIdx.x];
    return sum;
}

static __global__ void __launch_bounds__(COLUMN_THREADS)
    columns_add_kernel(float *sum, const float *x, size_t x_stride, unsigned rows, size_t dim) {
    const size_t i = (size_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const unsigned lane = threadIdx.x / COLUMNS;
    float total = 0.0f;
    if (i < dim)
#pragma unroll 8
        for (unsigned row = lane; row < rows; row += LANES) total += x[row * x_stride + i];
    total = column_sum(total);
    if (lane == 0 && i < dim) sum[i] += total;
}

void cuda_columns_add(kernels *k, float *sum, const float *x, size_t x_stride, size_t rows,
                      size_t dim) {
    if (rows <= FEW_ROWS)
        LAUNCH(k, few_rows_kernel, pieces_of(dim, THREADS), 0, sum, x, x_stride, (unsigned)rows,
               dim);
    else
        launch(k, columns_add_kernel, pieces_of(dim, COLUMNS), COLUMN_THREADS, 0, sum, x, x_stride,
               (unsigned)rows, dim);
}
