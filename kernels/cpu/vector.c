/* Vectors and rows. */
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

void cpu_copy(kernels *k, float *y, const float *x, size_t n) {
    (void)k;
    memcpy(y, x, n * sizeof *y);
}

void cpu_zero(kernels *k, float *x, size_t n) {
    (void)k;
    memset(x, 0, n * sizeof *x);
}

CPU_CLONES void cpu_scale(kernels *k, float *x, float a, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) x[i] *= a;
}

CPU_CLONES void cpu_add(kernels *k, float *restrict y, const float *restrict x, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

CPU_CLONES void cpu_copy_rows(kernels *k, float *restrict y, size_t y_stride,
                              const float *restrict x, size_t x_stride, size_t rows, size_t dim,
                              unsigned flags) {
    (void)k;
    for (size_t row = 0; row < rows; row++, y += y_stride, x += x_stride)
        if (flags & KERNELS_ADD)
            for (size_t i = 0; i < dim; i++) y[i] += x[i];
        else
            memcpy(y, x, dim * sizeof *y);
}

CPU_CLONES void cpu_sum_rows(kernels *k, float *restrict sum, const float *restrict x,
                             size_t x_stride, size_t rows, size_t dim) {
    (void)k;
    for (size_t row = 0; row < rows; row++, x += x_stride)
        for (size_t i = 0; i < dim; i++) sum[i] += x[i];
}

/* From the beginning on: what is still to be read lies above what is written, but for a stretch. */
void cpu_widen_upper(kernels *k, float *y, size_t n) {
    enum { STRETCH = 512 };
    const uint16_t *from = (const uint16_t *)y + n;
    uint16_t stretch[STRETCH];
    for (size_t at = 0; at < n; at += STRETCH) {
        const size_t here = n - at < STRETCH ? n - at : STRETCH;
        memcpy(stretch, from + at, here * sizeof *stretch);
        cpu_widen(k, y + at, stretch, here);
    }
}
