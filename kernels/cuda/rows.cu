/* What works row by row, a block a row: embedding, norms, cross-entropy, sums of squares. */
#include <math.h>

#include "device.cuh"
#include "kernels/limbs.h"

static __global__ void embedding_forward_kernel(float *out, const float *table, const int32_t *ids,
                                                size_t dim) {
    size_t row = blockIdx.x;
    const float *from = table + (size_t)ids[row] * dim;
    for (size_t i = threadIdx.x; i < dim; i += THREADS) out[row * dim + i] = from[i];
}

void cuda_embedding_forward(kernels *k, float *out, const float *table, const int32_t *ids,
                            size_t rows, size_t dim) {
    LAUNCH(k, embedding_forward_kernel, rows, 0, out, table, ids, dim);
}

/* A block owns a row of the table and looks through all tokens, THREADS at once, and adds up those
 * that are its own in order: no atomic additions, whose order would change. */
static __global__ void embedding_backward_kernel(float *dtable, const float *dout,
                                                 const int32_t *ids, size_t rows, size_t dim) {
    float *to = dtable + (size_t)blockIdx.x * dim;
    for (size_t first = 0; first < rows; first += THREADS) {
        const size_t mine = first + threadIdx.x, end = min(first + THREADS, rows);
        if (!__syncthreads_or(mine < rows && ids[mine] == (int32_t)blockIdx.x)) continue;
        for (size_t row = first; row < end; row++) {
            if (ids[row] != (int32_t)blockIdx.x) continue;
            for (size_t i = threadIdx.x; i < dim; i += THREADS) to[i] += dout[row * dim + i];
        }
    }
}

void cuda_embedding_backward(kernels *k, float *dtable, const float *dout, const int32_t *ids,
                             size_t rows, size_t vocab, size_t dim) {
    LAUNCH(k, embedding_backward_kernel, vocab, 0, dtable, dout, ids, rows, dim);
}

/* Sums of columns: a block owns COLUMNS of them, as many floats as memory is read at once; lane l
 * adds up rows l, l + LANES, ... and a fixed tree joins the lanes: the order depends on rows alone.
 */
enum { COLUMNS = 8, LANES = 128, COLUMN_THREADS = COLUMNS * LANES };

struct column {
    size_t i;
    unsigned lane;
};

static __device__ column column_of_thread() {
    return {(size_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS, threadIdx.x / COLUMNS};
}

/* The column's sum, on its first lane. All threads of the block call it. */
static __device__ float column_sum(float value) {
    __shared__ float part[COLUMN_THREADS];
    part[threadIdx.x] = value;
    __syncthreads();
    for (unsigned width = COLUMN_THREADS / 2; width >= COLUMNS; width /= 2) {
        if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
        __syncthreads();
    }
    float sum = part[threadIdx.x];
    __syncthreads();
    return sum;
}

#define LAUNCH_COLUMNS(k, kernel, dim, ...)                                                        \
    launch((k), (kernel), ((dim) + COLUMNS - 1) / COLUMNS, COLUMN_THREADS, 0, __VA_ARGS__)

template <typename T>
static __global__ void rmsnorm_forward_kernel(T *out, float *rstd, const float *x,
                                              const float *weight, size_t dim, float eps) {
    size_t row = blockIdx.x;
    const float *in = x + row * dim;
    float sum = 0.0f;
    for (size_t i = threadIdx.x; i < dim; i += THREADS) sum += in[i] * in[i];
    float scale = 1.0f / sqrtf(block_sum(sum) / (float)dim + eps);
    if (threadIdx.x == 0) rstd[row] = scale;
    for (size_t i = threadIdx.x; i < dim; i += THREADS)
        store(out + row * dim + i, weight[i] * (in[i] * scale));
}

void cuda_rmsnorm_forward(kernels *k, void *out, kernels_type type, float *rstd, const float *x,
                          const float *weight, size_t rows, size_t dim, float eps) {
    LAUNCH_TYPED(k, type, rmsnorm_forward_kernel, rows, ARGS((T *)out, rstd, x, weight, dim, eps));
}

static __global__ void __launch_bounds__(COLUMN_THREADS)
    rmsnorm_dweight_kernel(float *dweight, const float *dout, const float *x, const float *rstd,
                           size_t rows, size_t dim) {
    const column c = column_of_thread();
    float sum = 0.0f;
    for (size_t row = c.lane; row < rows && c.i < dim; row += LANES)
        sum += dout[row * dim + c.i] * (x[row * dim + c.i] * rstd[row]);
    sum = column_sum(sum);
    if (c.lane == 0 && c.i < dim) dweight[c.i] += sum;
}

static __global__ void rmsnorm_dx_kernel(float *dx, const float *dout, const float *x,
                                         const float *weight, const float *rstd, size_t dim,
                                         bool add) {
    size_t at = (size_t)blockIdx.x * dim;
    float scale = rstd[blockIdx.x], sum = 0.0f;
    for (size_t i = threadIdx.x; i < dim; i += THREADS) sum += dout[at + i] * weight[i] * x[at + i];
    float share = block_sum(sum) / (float)dim * scale * scale;
    for (size_t i = threadIdx.x; i < dim; i += THREADS) {
        float d = scale * (dout[at + i] * weight[i] - x[at + i] * share);
        dx[at + i] = add ? dx[at + i] + d : d;
    }
}

/* The weight's gradient first: dx may take the place of dout or x. */
void cuda_rmsnorm_backward(kernels *k, float *dx, float *dweight, const float *dout, const float *x,
                           const float *weight, const float *rstd, size_t rows, size_t dim,
                           unsigned flags) {
    LAUNCH_COLUMNS(k, rmsnorm_dweight_kernel, dim, dweight, dout, x, rstd, rows, dim);
    LAUNCH(k, rmsnorm_dx_kernel, rows, 0, dx, dout, x, weight, rstd, dim,
           (flags & KERNELS_ADD) != 0);
}

/* The mean first, then the squares around it: one pass would cancel. */
template <typename T>
static __global__ void layernorm_forward_kernel(T *out, float *mean, float *rstd, const float *x,
                                                const float *weight, const float *bias, size_t dim,
                                                float eps) {
    size_t row = blockIdx.x;
    const float *in = x + row * dim;
    float sum = 0.0f, squares = 0.0f;
    for (size_t i = threadIdx.x; i < dim; i += THREADS) sum += in[i];
    float middle = block_sum(sum) / (float)dim;
    for (size_t i = threadIdx.x; i < dim; i += THREADS)
        squares += (in[i] - middle) * (in[i] - middle);
    float scale = 1.0f / sqrtf(block_sum(squares) / (float)dim + eps);
    if (threadIdx.x == 0) {
        mean[row] = middle;
        rstd[row] = scale;
    }
    for (size_t i = threadIdx.x; i < dim; i += THREADS)
        store(out + row * dim + i, (in[i] - middle) * scale * weight[i] + bias[i]);
}

void cuda_layernorm_forward(kernels *k, void *out, kernels_type type, float *mean, float *rstd,
                            const float *x, const float *weight, const float *bias, size_t rows,
                            size_t dim, float eps) {
    LAUNCH_TYPED(k, type, layernorm_forward_kernel, rows,
                 ARGS((T *)out, mean, rstd, x, weight, bias, dim, eps));
}

static __global__ void __launch_bounds__(COLUMN_THREADS)
    layernorm_dweight_kernel(float *dweight, float *dbias, const float *dout, const float *x,
                             const float *mean, const float *rstd, size_t rows, size_t dim) {
    const column c = column_of_thread();
    float weight = 0.0f, bias = 0.0f;
    for (size_t row = c.lane; row < rows && c.i < dim; row += LANES) {
        float d = dout[row * dim + c.i];
        weight += d * ((x[row * dim + c.i] - mean[row]) * rstd[row]);
        bias += d;
    }
    weight = column_sum(weight);
    bias = column_sum(bias);
    if (c.lane || c.i >= dim) return;
    dweight[c.i] += weight;
    dbias[c.i] += bias;
}

static __global__ void layernorm_dx_kernel(float *dx, const float *dout, const float *x,
                                           const float *weight, const float *mean,
                                           const float *rstd, size_t dim, bool add) {
    size_t at = (size_t)blockIdx.x * dim;
    float middle = mean[blockIdx.x], scale = rstd[blockIdx.x], sum = 0.0f, along = 0.0f;
    for (size_t i = threadIdx.x; i < dim; i += THREADS) {
        float g = dout[at + i] * weight[i];
        sum += g;
        along += g * ((x[at + i] - middle) * scale);
    }
    sum = block_sum(sum) / (float)dim;
    along = block_sum(along) / (float)dim;
    for (size_t i = threadIdx.x; i < dim; i += THREADS) {
        float xhat = (x[at + i] - middle) * scale;
        float d = scale * (dout[at + i] * weight[i] - sum - xhat * along);
        dx[at + i] = add ? dx[at + i] + d : d;
    }
}

/* The weight's gradient first: dx may take the place of dout or x. */
void cuda_layernorm_backward(kernels *k, float *dx, float *dweight, float *dbias, const float *dout,
                             const float *x, const float *weight, const float *mean,
                             const float *rstd, size_t rows, size_t dim, unsigned flags) {
    LAUNCH_COLUMNS(k, layernorm_dweight_kernel, dim, dweight, dbias, dout, x, mean, rstd, rows,
                   dim);
    LAUNCH(k, layernorm_dx_kernel, rows, 0, dx, dout, x, weight, mean, rstd, dim,
           (flags & KERNELS_ADD) != 0);
}

static __global__ void __launch_bounds__(COLUMN_THREADS)
    sum_rows_kernel(float *sum, const float *x, size_t x_stride, size_t rows, size_t dim) {
    const column c = column_of_thread();
    float total = 0.0f;
    for (size_t row = c.lane; row < rows && c.i < dim; row += LANES)
        total += x[row * x_stride + c.i];
    total = column_sum(total);
    if (c.lane == 0 && c.i < dim) sum[c.i] += total;
}

void cuda_sum_rows(kernels *k, float *sum, const float *x, size_t x_stride, size_t rows,
                   size_t dim) {
    LAUNCH_COLUMNS(k, sum_rows_kernel, dim, sum, x, x_stride, rows, dim);
}

static __global__ void cross_entropy_forward_kernel(double *losses, float *lse, const float *logits,
                                                    const int32_t *targets, size_t vocab) {
    size_t row = blockIdx.x;
    const float *x = logits + row * vocab;
    float most = -INFINITY, sum = 0.0f;
    for (size_t i = threadIdx.x; i < vocab; i += THREADS) most = fmaxf(most, x[i]);
    most = block_max(most);
    for (size_t i = threadIdx.x; i < vocab; i += THREADS) sum += expf(x[i] - most);
    sum = block_sum(sum);
    if (threadIdx.x) return;
    double log_sum = (double)most + log((double)sum);
    int32_t target = targets[row];
    lse[row] = (float)log_sum;
    losses[row] = target == KERNELS_IGNORE ? 0.0 : log_sum - (double)x[target];
}

void cuda_cross_entropy_forward(kernels *k, double *losses, float *lse, const float *logits,
                                const int32_t *targets, size_t rows, size_t vocab) {
    LAUNCH(k, cross_entropy_forward_kernel, rows, 0, losses, lse, logits, targets, vocab);
}

template <typename T>
static __global__ void cross_entropy_backward_kernel(T *dlogits, const float *logits,
                                                     const float *lse, const int32_t *targets,
                                                     size_t vocab, float scale) {
    size_t row = blockIdx.x, at = row * vocab;
    int32_t target = targets[row];
    float log_sum = lse[row];
    for (size_t i = threadIdx.x; i < vocab; i += THREADS) {
        float d = scale * expf(logits[at + i] - log_sum);
        d -= i == (size_t)target ? scale : 0.0f;
        store(dlogits + at + i, target == KERNELS_IGNORE ? 0.0f : d);
    }
}

void cuda_cross_entropy_backward(kernels *k, void *dlogits, kernels_type type, const float *logits,
                                 const float *lse, const int32_t *targets, size_t rows,
                                 size_t vocab, float scale) {
    LAUNCH_TYPED(k, type, cross_entropy_backward_kernel, rows,
                 ARGS((T *)dlogits, logits, lse, targets, vocab, scale));
}

static __global__ void row_sumsq_kernel(double *out, const float *x, size_t dim) {
    const float *row = x + (size_t)blockIdx.x * dim;
    double sum = 0.0;
    for (size_t i = threadIdx.x; i < dim; i += THREADS) sum += (double)row[i] * (double)row[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

void cuda_row_sumsq(kernels *k, double *out, const float *x, size_t rows, size_t dim) {
    LAUNCH(k, row_sumsq_kernel, rows, 0, out, x, dim);
}

static __device__ void add_limb(unsigned long long *limb, uint64_t part) {
    if (part) atomicAdd(limb, (unsigned long long)part);
}

/* A block adds up limbs of its own first. Atomic additions of integers: their order is free, and
 * the sum the same. */
static __global__ void exact_add_kernel(unsigned long long *sum, const double *x, size_t n) {
    __shared__ unsigned long long own[KERNELS_LIMBS + 1];
    for (unsigned i = threadIdx.x; i <= KERNELS_LIMBS; i += THREADS) own[i] = 0;
    __syncthreads();
    FOR_EACH(i, n) {
        kernels_cut cut;
        if (kernels_cut_bits((uint64_t)__double_as_longlong(x[i]), &cut)) {
            add_limb(own + KERNELS_LIMBS, 1);
            continue;
        }
        add_limb(own + cut.limb, cut.low);
        add_limb(own + cut.limb + 1, cut.middle);
        add_limb(own + cut.limb + 2, cut.high);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i <= KERNELS_LIMBS; i += THREADS) add_limb(sum + i, own[i]);
}

void cuda_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n) {
    LAUNCH(k, exact_add_kernel, blocks_for(n), 0, (unsigned long long *)sum, x, n);
}
