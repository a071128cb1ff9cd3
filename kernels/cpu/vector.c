/* Vectors and rows. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"
#include "kernels/limbs.h"
#include "kernels/rules.h"

static void cpu_copy(kernels *k, float *y, const float *x, size_t n) {
    (void)k;
    memcpy(y, x, n * sizeof *y);
}

static void cpu_zero(kernels *k, float *x, size_t n) {
    (void)k;
    memset(x, 0, n * sizeof *x);
}

CPU_CLONES static void cpu_scale(kernels *k, float *x, float a, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) x[i] *= a;
}

CPU_CLONES static void cpu_add(kernels *k, float *restrict y, const float *restrict x, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

CPU_CLONES static void cpu_copy_rows(kernels *k, float *restrict y, size_t y_stride,
                                     const float *restrict x, size_t x_stride, size_t rows,
                                     size_t dim, unsigned flags) {
    (void)k;
    for (size_t row = 0; row < rows; row++, y += y_stride, x += x_stride)
        if (flags & KERNELS_ADD)
            for (size_t i = 0; i < dim; i++) y[i] += x[i];
        else
            memcpy(y, x, dim * sizeof *y);
}

static void cpu_copy_parts(kernels *k, float *y, const float *x, const kernels_part *parts,
                           size_t n) {
    for (size_t i = 0; i < n; i++) cpu_copy(k, y + parts[i].to, x + parts[i].from, parts[i].n);
}

CPU_CLONES static void cpu_sum_rows(kernels *k, float *restrict sum, const float *restrict x,
                                    size_t x_stride, size_t rows, size_t dim) {
    (void)k;
    for (size_t row = 0; row < rows; row++, x += x_stride)
        for (size_t i = 0; i < dim; i++) sum[i] += x[i];
}

void cpu_vector_fill(kernels *k) {
    k->copy = cpu_copy;
    k->zero = cpu_zero;
    k->scale = cpu_scale;
    k->add = cpu_add;
    k->copy_rows = cpu_copy_rows;
    k->copy_parts = cpu_copy_parts;
    k->sum_rows = cpu_sum_rows;
}

/* Updates of parameters, with one function per rule, and the sums of squares for clipping. */

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
        param[i] = param[i] * f.decay - f.step_size * (m / (sqrtf(v) / f.root + f.eps));
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
        param[i] -= f.step_size * (f.nesterov ? g + f.ahead * b : b);
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
