/* Cross-entropy and its gradient. The row's largest logit is subtracted before exp, so nothing
 * overflows. The sum runs in 16 fp32 lanes, and the loss itself is computed in fp64. */
#include <math.h>
#include <stdbool.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

/* Returns the sum of exp(x - most) over the row that begins at `at`. */
CPU_INLINE float sum_exp(const void *x, kernels_type type, size_t at, float most, size_t n) {
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += lanes_exp(lanes_load(x, at + i + l, type) - most);
    for (size_t l = 0; i + l < n; l++) lane[l] += lanes_exp(lanes_load(x, at + i + l, type) - most);
    return lanes_fold(lane);
}

/* Returns log sum exp of the row that begins at `at`. */
CPU_INLINE double log_sum_of(const void *x, kernels_type type, size_t at, size_t n) {
    const float most = lanes_largest(x, type, at, n);
    return (double)most + log((double)sum_exp(x, type, at, most, n));
}

CPU_CLONES static void cpu_cross_entropy_forward(kernels *k, double *losses, float *lse,
                                                 const void *logits, kernels_type type,
                                                 const int32_t *targets, size_t rows,
                                                 size_t vocab) {
    (void)k;
    for (size_t row = 0; row < rows; row++) {
        const size_t at = row * vocab;
        const double log_sum = type == KERNELS_BF16 ? log_sum_of(logits, KERNELS_BF16, at, vocab)
                                                    : log_sum_of(logits, KERNELS_F32, at, vocab);
        const int32_t target = targets[row];
        lse[row] = (float)log_sum;
        losses[row] = target == KERNELS_IGNORE
                          ? 0.0
                          : log_sum - (double)lanes_load(logits, at + (size_t)target, type);
    }
}

/* dlogits may be logits: each element is read before it is written. */
CPU_INLINE void row_backward(void *dlogits, const void *x, kernels_type type, size_t at,
                             float log_sum, size_t target, size_t vocab, float scale) {
    const float of_target = scale * lanes_exp(lanes_load(x, at + target, type) - log_sum) - scale;
#pragma GCC ivdep
    for (size_t i = 0; i < vocab; i++)
        lanes_store(dlogits, at + i, type,
                    scale * lanes_exp(lanes_load(x, at + i, type) - log_sum));
    lanes_store(dlogits, at + target, type, of_target);
}

CPU_CLONES static void cpu_cross_entropy_backward(kernels *k, void *dlogits, const void *logits,
                                                  kernels_type type, const float *lse,
                                                  const int32_t *targets, size_t rows, size_t vocab,
                                                  float scale) {
    const size_t elem = type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    (void)k;
    for (size_t row = 0; row < rows; row++) {
        const size_t at = row * vocab, target = (size_t)targets[row];
        if (targets[row] == KERNELS_IGNORE)
            memset((char *)dlogits + at * elem, 0, vocab * elem);
        else if (type == KERNELS_BF16)
            row_backward(dlogits, logits, KERNELS_BF16, at, lse[row], target, vocab, scale);
        else
            row_backward(dlogits, logits, KERNELS_F32, at, lse[row], target, vocab, scale);
    }
}

void cpu_loss_fill(kernels *k) {
    k->cross_entropy_forward = cpu_cross_entropy_forward;
    k->cross_entropy_backward = cpu_cross_entropy_backward;
}

/* RMSNorm and LayerNorm. A row's sums run in 16 fp32 lanes. The gradient of the weight is a sum
 * over rows, in their order. */

CPU_INLINE void rms_rows(void *out, kernels_type type, float *restrict rstd,
                         const float *restrict x, const float *restrict weight, size_t rows,
                         size_t dim, float eps) {
    for (size_t row = 0; row < rows; row++) {
        const float *in = x + row * dim;
        float scale = 1.0f / sqrtf(lanes_dot(in, in, dim) / (float)dim + eps);
        rstd[row] = scale;
#pragma GCC ivdep
        for (size_t i = 0; i < dim; i++)
            lanes_store(out, row * dim + i, type, weight[i] * (in[i] * scale));
    }
}

CPU_CLONES static void cpu_rmsnorm_forward(kernels *k, void *out, kernels_type type, float *rstd,
                                           const float *x, const float *weight, size_t rows,
                                           size_t dim, float eps) {
    (void)k;
    if (type == KERNELS_BF16)
        rms_rows(out, KERNELS_BF16, rstd, x, weight, rows, dim, eps);
    else
        rms_rows(out, KERNELS_F32, rstd, x, weight, rows, dim, eps);
}

/* Returns the sum of dout * weight * (x - mean) over a row. */
CPU_INLINE float dot3_around(const float *dout, const float *weight, const float *x, float mean,
                             size_t dim) {
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += dout[i + l] * weight[i + l] * (x[i + l] - mean);
    for (size_t l = 0; i + l < dim; l++) lane[l] += dout[i + l] * weight[i + l] * (x[i + l] - mean);
    return lanes_fold(lane);
}

CPU_CLONES static void cpu_rmsnorm_backward(kernels *k, float *dx, uint16_t *rounded,
                                            float *restrict dweight, const float *dout,
                                            const float *x, const float *restrict weight,
                                            const float *restrict rstd, size_t rows, size_t dim,
                                            unsigned flags) {
    const bool add = (flags & KERNELS_ADD) != 0;
    for (size_t row = 0; row < rows; row++) {
        const float *d = dout + row * dim, *in = x + row * dim;
        float *to = dx + row * dim;
        float scale = rstd[row];
        /* mean(g * xhat) * rstd, the factor of x */
        float share = dot3_around(d, weight, in, 0, dim) / (float)dim * scale * scale;
#pragma GCC ivdep
        for (size_t i = 0; i < dim; i++) {
            const float change = scale * (d[i] * weight[i] - in[i] * share);
            dweight[i] += d[i] * (in[i] * scale);
            to[i] = add ? to[i] + change : change;
        }
        if (rounded) k->narrow(k, rounded + row * dim, to, dim);
    }
}

/* Returns the sum of (x - mean)^2 over a row. */
CPU_INLINE float squares_around(const float *x, float mean, size_t dim) {
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (size_t l = 0; i + l < dim; l++) lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    return lanes_fold(lane);
}

/* Computes the mean first, then the squared differences from it. Sums of x and x^2 would need only
 * one pass, but subtracting them would cancel leading digits. */
CPU_INLINE void layer_rows(void *out, kernels_type type, float *restrict mean, float *restrict rstd,
                           const float *restrict x, const float *restrict weight,
                           const float *restrict bias, size_t rows, size_t dim, float eps) {
    for (size_t row = 0; row < rows; row++) {
        const float *in = x + row * dim;
        float middle = lanes_sum(in, dim) / (float)dim;
        float scale = 1.0f / sqrtf(squares_around(in, middle, dim) / (float)dim + eps);
        mean[row] = middle;
        rstd[row] = scale;
#pragma GCC ivdep
        for (size_t i = 0; i < dim; i++)
            lanes_store(out, row * dim + i, type, (in[i] - middle) * scale * weight[i] + bias[i]);
    }
}

CPU_CLONES static void cpu_layernorm_forward(kernels *k, void *out, kernels_type type, float *mean,
                                             float *rstd, const float *x, const float *weight,
                                             const float *bias, size_t rows, size_t dim,
                                             float eps) {
    (void)k;
    if (type == KERNELS_BF16)
        layer_rows(out, KERNELS_BF16, mean, rstd, x, weight, bias, rows, dim, eps);
    else
        layer_rows(out, KERNELS_F32, mean, rstd, x, weight, bias, rows, dim, eps);
}

CPU_CLONES static void
cpu_layernorm_backward(kernels *k, float *dx, uint16_t *rounded, float *restrict dweight,
                       float *restrict dbias, const float *dout, const float *x,
                       const float *restrict weight, const float *restrict mean,
                       const float *restrict rstd, size_t rows, size_t dim, unsigned flags) {
    const bool add = (flags & KERNELS_ADD) != 0;
    for (size_t row = 0; row < rows; row++) {
        const float *d = dout + row * dim, *in = x + row * dim;
        float *to = dx + row * dim;
        float scale = rstd[row], middle = mean[row];
        float sum = lanes_dot(d, weight, dim) / (float)dim;
        /* mean(g * xhat) * rstd, the factor of x - mean */
        float share = dot3_around(d, weight, in, middle, dim) / (float)dim * scale * scale;
#pragma GCC ivdep
        for (size_t i = 0; i < dim; i++) {
            const float change = scale * (d[i] * weight[i] - sum - (in[i] - middle) * share);
            dweight[i] += d[i] * ((in[i] - middle) * scale);
            dbias[i] += d[i];
            to[i] = add ? to[i] + change : change;
        }
        if (rounded) k->narrow(k, rounded + row * dim, to, dim);
    }
}

void cpu_norm_fill(kernels *k) {
    k->rmsnorm_forward = cpu_rmsnorm_forward;
    k->rmsnorm_backward = cpu_rmsnorm_backward;
    k->layernorm_forward = cpu_layernorm_forward;
    k->layernorm_backward = cpu_layernorm_backward;
}
