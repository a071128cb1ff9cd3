/* Updates of parameters, one function a rule, and the sums of squares for clipping. */
#include <math.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"
#include "kernels/limbs.h"

/* The options as PyTorch passes them on to its fp32 kernels: computed in fp64, then rounded. */
typedef struct adamw_factors {
    float grad_scale, decay, towards_grad, keep_square, add_square, root, eps, step;
} adamw_factors;

static adamw_factors adamw_factors_of(const kernels_update *u) {
    double correction1 = 1.0 - pow(u->beta1, (double)u->step);
    double correction2 = 1.0 - pow(u->beta2, (double)u->step);
    return (adamw_factors){.grad_scale = (float)u->grad_scale,
                           .decay = (float)(1.0 - u->lr * u->weight_decay),
                           .towards_grad = (float)(1.0 - u->beta1),
                           .keep_square = (float)u->beta2,
                           .add_square = (float)(1.0 - u->beta2),
                           .root = (float)sqrt(correction2),
                           .eps = (float)u->eps,
                           .step = (float)(u->lr / correction1)};
}

CPU_CLONES static void adamw_elements(float *restrict param, float *restrict exp_avg,
                                      float *restrict exp_avg_sq, const float *restrict grad,
                                      size_t n, const adamw_factors *factors) {
    const adamw_factors f = *factors;
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
    const adamw_factors f = adamw_factors_of(u);
    adamw_elements(param, slots[0], slots[1], grad, n, &f);
}

typedef struct sgd_factors {
    float grad_scale, decay, keep, add, ahead, step;
} sgd_factors;

static sgd_factors sgd_factors_of(const kernels_update *u) {
    const int begins = u->step == 1 || u->momentum == 0;
    return (sgd_factors){.grad_scale = (float)u->grad_scale,
                         .decay = (float)u->weight_decay,
                         .keep = begins ? 0.0f : (float)u->momentum,
                         .add = begins ? 1.0f : (float)(1.0 - u->dampening),
                         .ahead = (float)u->momentum,
                         .step = (float)u->lr};
}

CPU_CLONES static void sgd_elements(float *restrict param, float *restrict buffer,
                                    const float *restrict grad, size_t n,
                                    const sgd_factors *factors, int nesterov) {
    const sgd_factors f = *factors;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * f.grad_scale + f.decay * param[i];
        float b = f.keep * buffer[i] + f.add * g;
        buffer[i] = b;
        param[i] -= f.step * (nesterov ? g + f.ahead * b : b);
    }
}

static void sgd_update(const kernels_update *u, float *param, void *const *slots, const float *grad,
                       size_t n) {
    const sgd_factors f = sgd_factors_of(u);
    sgd_elements(param, slots[0], grad, n, &f, u->nesterov);
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
