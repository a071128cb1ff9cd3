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
CPU_INLINE void row_backward(void *dlogits, kernels_type type, size_t at, const float *x,
                             float log_sum, size_t target, size_t vocab, float scale) {
    const float of_target = scale * lanes_exp(x[target] - log_sum) - scale;
#pragma GCC ivdep
    for (size_t i = 0; i < vocab; i++)
        lanes_store(dlogits, at + i, type, scale * lanes_exp(x[i] - log_sum));
    lanes_store(dlogits, at + target, type, of_target);
}

CPU_CLONES void cpu_cross_entropy_backward(kernels *k, void *dlogits, kernels_type type,
                                           const float *logits, const float *lse,
                                           const int32_t *targets, size_t rows, size_t vocab,
                                           float scale) {
    const size_t elem = type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    (void)k;
    for (size_t row = 0; row < rows; row++) {
        const size_t at = row * vocab, target = (size_t)targets[row];
        const float *x = logits + at;
        if (targets[row] == KERNELS_IGNORE)
            memset((char *)dlogits + at * elem, 0, vocab * elem);
        else if (type == KERNELS_BF16)
            row_backward(dlogits, KERNELS_BF16, at, x, lse[row], target, vocab, scale);
        else
            row_backward(dlogits, KERNELS_F32, at, x, lse[row], target, vocab, scale);
    }
}
