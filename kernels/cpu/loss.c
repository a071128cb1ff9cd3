/* Cross-entropy and its gradient. The row's largest logit is taken off before exp, so nothing
 * overflows; the sum runs in 16 fp32 lanes; the loss itself is formed in fp64. */
#include <math.h>

#include "cpu.h"
#include "lanes.h"

/* sum of exp(x[n] - most) */
CPU_INLINE float sum_exp(const float *x, float most, size_t n) {
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += lanes_exp(x[i + l] - most);
    for (size_t l = 0; i + l < n; l++) lane[l] += lanes_exp(x[i + l] - most);
    return lanes_fold(lane);
}

CPU_CLONES void cpu_cross_entropy_forward(kernels *k, double *restrict losses, float *restrict lse,
                                          const float *restrict logits,
                                          const int32_t *restrict targets, size_t rows,
                                          size_t vocab) {
    (void)k;
    for (size_t row = 0; row < rows; row++) {
        const float *x = logits + row * vocab;
        float most = lanes_max(x, vocab);
        double log_sum = (double)most + log((double)sum_exp(x, most, vocab));
        int32_t target = targets[row];
        lse[row] = (float)log_sum;
        losses[row] = target == KERNELS_IGNORE ? 0.0 : log_sum - (double)x[target];
    }
}

/* dlogits may be logits: each element is read before it is written. */
CPU_CLONES void cpu_cross_entropy_backward(kernels *k, float *dlogits, const float *logits,
                                           const float *lse, const int32_t *targets, size_t rows,
                                           size_t vocab, float scale) {
    for (size_t row = 0; row < rows; row++) {
        const float *x = logits + row * vocab;
        float *dx = dlogits + row * vocab, log_sum = lse[row];
        if (targets[row] == KERNELS_IGNORE) {
            cpu_zero(k, dx, vocab);
            continue;
        }
#pragma GCC ivdep
        for (size_t i = 0; i < vocab; i++) dx[i] = scale * lanes_exp(x[i] - log_sum);
        dx[targets[row]] -= scale;
    }
}
