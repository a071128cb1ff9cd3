/* AdamW, and the sums of squares for clipping. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"
#include "kernels/limbs.h"
#include "cpu/lanes.h"

/* The options as PyTorch passes them on to its fp32 kernels: computed in fp64, then rounded. */
typedef struct factors {
    float grad_scale, decay, towards_grad, keep_square, add_square, root, eps, step;
} factors;

static factors factors_of(const kernels_adamw *o) {
    double correction1 = 1.0 - pow(o->beta1, (double)o->step);
    double correction2 = 1.0 - pow(o->beta2, (double)o->step);
    return (factors){.grad_scale = (float)o->grad_scale,
                     .decay = (float)(1.0 - o->lr * o->weight_decay),
                     .towards_grad = (float)(1.0 - o->beta1),
                     .keep_square = (float)o->beta2,
                     .add_square = (float)(1.0 - o->beta2),
                     .root = (float)sqrt(correction2),
                     .eps = (float)o->eps,
                     .step = (float)(o->lr / correction1)};
}

CPU_CLONES static void update(float *restrict param, float *restrict exp_avg,
                              float *restrict exp_avg_sq, const float *restrict grad, size_t n,
                              const factors *options) {
    const factors f = *options;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * f.grad_scale;
        float m = exp_avg[i] + f.towards_grad * (g - exp_avg[i]);
        float v = exp_avg_sq[i] * f.keep_square + f.add_square * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        param[i] = param[i] * f.decay - f.step * (m / (sqrtf(v) / f.root + f.eps));
    }
}

void cpu_adamw(kernels *k, float *param, float *exp_avg, float *exp_avg_sq, const float *grad,
               size_t n, const kernels_adamw *options) {
    (void)k;
    factors f = factors_of(options);
    update(param, exp_avg, exp_avg_sq, grad, n, &f);
}

CPU_INLINE double row_sum(const float *x, size_t dim) {
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i + l < dim; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t width = LANES / 2; width; width /= 2)
        for (size_t l = 0; l < width; l++) lane[l] += lane[l + width];
    return lane[0];
}

CPU_CLONES void cpu_row_sumsq(kernels *k, double *restrict out, const float *restrict x,
                              size_t rows, size_t dim) {
    (void)k;
    for (size_t row = 0; row < rows; row++) out[row] = row_sum(x + row * dim, dim);
}

void cpu_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        kernels_cut cut;
        memcpy(&bits, x + i, sizeof bits);
        if (kernels_cut_bits(bits, &cut)) {
            sum[KERNELS_LIMBS]++;
            continue;
        }
        sum[cut.limb] += cut.low;
        sum[cut.limb + 1] += cut.middle;
        sum[cut.limb + 2] += cut.high;
    }
}
