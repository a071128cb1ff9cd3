/* Vectors and rows. */
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

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
