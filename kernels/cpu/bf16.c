/* bf16: rounding, widening, and matrix products.
 *
 * Products go to the processor's own instructions where it has them. Elsewhere operands are
 * widened, which is exact, a panel at a time, and multiplied in fp32: the product of two bf16 is
 * exact in fp32, so that only the order of the sums differs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

enum { PANEL = 2048 }; /* rows that are widened at once */

CPU_CLONES void cpu_narrow(kernels *k, uint16_t *restrict y, const float *restrict x, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) y[i] = bf16_of(x[i]);
}

void cpu_narrow_on(kernels *k, void *stream, uint16_t *y, const float *x, size_t n) {
    (void)stream;
    cpu_narrow(k, y, x, n);
}

CPU_CLONES void cpu_widen(kernels *k, float *restrict y, const uint16_t *restrict x, size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) y[i] = bf16_wide(x[i]);
}

/* Memory for widened operands; kept from product to product. */
static float *wide_memory(kernels *k, size_t elems) {
    cpu_state *state = k->state;
    if (elems <= state->wide_elems) return state->wide;
    k->free(k, state->wide);
    state->wide_elems = 0;
    state->wide = k->alloc(k, elems * sizeof(float));
    if (state->wide) state->wide_elems = elems;
    return state->wide;
}

static size_t padded(size_t elems) { return (elems + 15) / 16 * 16; }

typedef struct bf16_product {
    uint16_t *narrow; /* c, one of the two */
    float *c;
    const uint16_t *a, *b;
    size_t m, n, depth;
    unsigned flags; /* of cpu_matmul */
} bf16_product;

/* A panel of rows of a, and of c; all of b. */
static int by_rows(kernels *k, const bf16_product *p) {
    const size_t panel = p->m < PANEL ? p->m : PANEL;
    const size_t b_elems = padded(p->n * p->depth), a_elems = padded(panel * p->depth);
    float *b = wide_memory(k, b_elems + a_elems + (p->narrow ? panel * p->n : 0));
    if (!b) return 1;
    float *a = b + b_elems, *c = a + a_elems;
    cpu_widen(k, b, p->b, p->n * p->depth);
    for (size_t row = 0; row < p->m; row += panel) {
        const size_t rows = p->m - row < panel ? p->m - row : panel;
        cpu_widen(k, a, p->a + row * p->depth, rows * p->depth);
        cpu_matmul(k, p->narrow ? c : p->c + row * p->n, a, b, rows, p->n, p->depth, p->flags);
        if (p->narrow) cpu_narrow(k, p->narrow + row * p->n, c, rows * p->n);
    }
    return 0;
}

/* a is [depth,m]: a panel of it and of b [depth,n], added to c. A b of the other order has no such
 * panels, and is taken whole. */
static int by_depth(kernels *k, const bf16_product *p) {
    const size_t most = p->flags & KERNELS_TRANSPOSE_B ? p->depth : PANEL;
    const size_t panel = p->depth < most ? p->depth : most;
    const size_t a_elems = padded(panel * p->m), b_elems = padded(panel * p->n);
    float *a = wide_memory(k, a_elems + b_elems + (p->narrow ? p->m * p->n : 0));
    if (!a) return 1;
    float *b = a + a_elems, *c = p->narrow ? b + b_elems : p->c;
    unsigned flags = p->flags;
    for (size_t row = 0; row < p->depth; row += panel) {
        const size_t rows = p->depth - row < panel ? p->depth - row : panel;
        cpu_widen(k, a, p->a + row * p->m, rows * p->m);
        cpu_widen(k, b, p->b + row * p->n, rows * p->n);
        cpu_matmul(k, c, a, b, p->m, p->n, rows, flags);
        flags |= KERNELS_ADD;
    }
    if (p->narrow) cpu_narrow(k, p->narrow, c, p->m * p->n);
    return 0;
}

static void poison(kernels *k, void *c, size_t elems, unsigned flags) {
    memset(c, 0xff, elems * (flags & KERNELS_NARROW ? sizeof(uint16_t) : sizeof(float)));
    cpu_product_failed(k);
}

void cpu_matmul_bf16(kernels *k, void *c, const uint16_t *a, const uint16_t *b, size_t m, size_t n,
                     size_t depth, unsigned flags) {
    const cpu_state *state = k->state;
    const int narrow = (flags & KERNELS_NARROW) != 0;
    const bf16_product p = {.narrow = narrow ? c : NULL,
                            .c = narrow ? NULL : c,
                            .a = a,
                            .b = b,
                            .m = m,
                            .n = n,
                            .depth = depth,
                            .flags = flags & ~(unsigned)KERNELS_NARROW};
    if (!m || !n) return;
    const int failed = state->bf16 ? cpu_bf16_matmul(state->bf16, c, a, b, m, n, depth, flags)
                       : flags & KERNELS_TRANSPOSE_A ? by_depth(k, &p)
                                                     : by_rows(k, &p);
    if (failed) poison(k, c, m * n, flags);
}

/* The product forwards, where it is rounded, takes the most: all of the weight, a panel of its
 * operand and one of what comes out. */
size_t cpu_matmul_bf16_keeps(const kernels *k, size_t m, size_t n, size_t depth) {
    const cpu_state *state = k->state;
    const size_t panel = m < PANEL ? m : PANEL;
    return state->bf16 ? 0 : (n * depth + panel * (n + depth)) * sizeof(float);
}
