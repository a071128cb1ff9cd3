/* Element-wise helpers. */
#include <string.h>

#include "cpu.h"
#include "lanes.h"

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
