/* Cross-entropy and its gradient. The row's largest logit is subtracted before exp, so nothing
 * overflows. The sum runs in 16 fp32 lanes, and the loss itself is computed in fp64. */
#include <math.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

/* sum of exp(x - most) over the row that begins at `at` */
CPU_INLINE float sum_exp(const void *x, kernels_type type, size_t at, float most, size_t n) {
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += lanes_exp(lanes_load(x, at + i + l, type) - most);
    for (size_t l = 0; i + l < n; l++) lane[l] += lanes_exp(lanes_load(x, at + i + l, type) - most);
    return lanes_fold(lane);
}

/* log sum exp */
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
