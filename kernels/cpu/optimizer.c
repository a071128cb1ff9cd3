/* Updates of parameters, one function a rule, and the sums of squares for clipping. */
#include <math.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"
#include "kernels/limbs.h"
#include "kernels/rules.h"

CPU_CLONES static void adamw_elements(float *restrict param, float *restrict exp_avg,
                                      float *restrict exp_avg_sq, const float *restrict grad,
                                      size_t n, const kernels_update *u) {
    const kernels_adamw f = kernels_adamw_of(u);
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * f.grad_scale;
        float m = exp_avg[i] + f.towards_grad * (g - exp_avg[i]);
        float v = exp_avg_sq[i] * f.keep_square + f.add_square * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        param[i] = param[i] * f.decay - f.step * (m / (sqrtf(v) / f.root + f.eps));
    }
}

static void adamw_update(const kernels_update *u, float *param, void *const *slots,
                         const float *grad, size_t n) {
    adamw_elements(param, slots[0], slots[1], grad, n, u);
}

CPU_CLONES static void sgd_elements(float *restrict param, float *restrict buffer,
                                    const float *restrict grad, size_t n, const kernels_update *u) {
    const kernels_sgd f = kernels_sgd_of(u);
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * f.grad_scale + f.decay * param[i];
        float b = f.keep * buffer[i] + f.add * g;
        buffer[i] = b;
        param[i] -= f.step * (f.nesterov ? g + f.ahead * b : b);
    }
}

static void sgd_update(const kernels_update *u, float *param, void *const *slots, const float *grad,
                       size_t n) {
    sgd_elements(param, slots[0], grad, n, u);
}

static void cpu_update(kernels *k, const kernels_update *u, float *param, void *const *slots,
                       const float *grad, size_t n) {
    static void (*const rules[])(const kernels_update *, float *, void *const *, const float *,
                                 size_t) = {
        [KERNELS_ADAMW] = adamw_update, [KERNELS_SGD] = sgd_update};
    (void)k;
    rules[u->rule](u, param, slots, grad, n);
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

CPU_CLONES static void cpu_row_sumsq(kernels *k, double *restrict out, const float *restrict x,
                                     size_t rows, size_t dim) {
    (void)k;
    for (size_t row = 0; row < rows; row++) out[row] = row_sum(x + row * dim, dim);
}

static void cpu_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) kernels_limbs_add(sum, x[i]);
}

void cpu_optimizer_fill(kernels *k) {
    k->update = cpu_update;
    k->row_sumsq = cpu_row_sumsq;
    k->exact_add = cpu_exact_add;
}
