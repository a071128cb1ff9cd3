/* Our own matrix products: the loops around the tiles of gemm_tile.c.
 *
 * For processors with AVX2 and FMA but without AVX-512. There oneDNN leaves a weight's gradient of
 * 512 x 512 at 60 % of its speed, since it doesn't pack operands where both sides of c are small,
 * and knows no bf16, which costs nothing here: packing widens it.
 *
 * Bits: a sum runs along the depth, in steps of at most GEMM_DEPTH whose sums are added in order.
 * So it depends on the depth alone. */
#include "gemm.h"

#if defined(__x86_64__)
#include "lanes.h"

enum { NARROW_ROWS = 8 * GEMM_ROWS };

/* 4 MiB: two huge pages. */
struct cpu_gemm {
    float b[GEMM_COLS * GEMM_PANEL];
    float c[NARROW_ROWS * GEMM_COLS]; /* sums that are still to be rounded to bf16 */
    float a[GEMM_ROWS * GEMM_DEPTH];
    float rest[(1 << 20) - GEMM_COLS * (GEMM_PANEL + NARROW_ROWS) - GEMM_ROWS * GEMM_DEPTH];
};

int cpu_gemm_wanted(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           !__builtin_cpu_supports("avx512f");
}

cpu_gemm *cpu_gemm_open(kernels *k) { return k->alloc(k, sizeof(cpu_gemm)); }

void cpu_gemm_close(kernels *k, cpu_gemm *g) { k->free(k, g); }

int cpu_gemm_pays(const cpu_product *p) {
    return p->transpose_a == 'T' && p->depth >= 256 && p->n >= 64 && p->m * p->n <= (size_t)1 << 19;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Steps of equal size and at most `most`. */
static size_t equal_step(size_t depth, size_t most) {
    const size_t steps = depth ? (depth + most - 1) / most : 1;
    return ((depth + steps - 1) / steps + 7) / 8 * 8;
}

static gemm_matrix matrix(const void *data, kernels_type type, char transposed, size_t stride) {
    const int turned = transposed == 'T';
    return (gemm_matrix){
        .data = data, .type = type, .row = turned ? 1 : stride, .col = turned ? stride : 1};
}

/* What one panel of B is multiplied by. */
typedef struct panel {
    const cpu_product *p;
    gemm_matrix a, b;
    size_t at, depth; /* its part of the product's depth */
    size_t col, cols;
} panel;

/* Rows of c [row, row + rows) stay in the second cache along the panel's depth. */
static void multiply_rows(cpu_gemm *g, const panel *n, float *c, size_t row, size_t rows) {
    const cpu_product *p = n->p;
    const size_t step = equal_step(n->depth, GEMM_DEPTH);
    size_t at = 0;
    do { /* once for a depth of 0, which leaves zeros */
        const size_t depth = least(step, n->depth - at);
        const gemm_strips strips = gemm_pack_a(g->a, &n->a, row, rows, n->at + at, depth);
        gemm_block(&strips, g->b + at * GEMM_COLS, c + row * p->ldc + n->col, p->ldc, rows, n->cols,
                   depth, p->alpha, n->at + at > 0 || p->beta != 0.0f);
        at += depth;
    } while (at < n->depth);
}

static void multiply_panel(cpu_gemm *g, const panel *n, float *c) {
    const size_t step = equal_step(n->depth, GEMM_DEPTH);
    for (size_t at = 0; at < n->depth; at += step)
        gemm_pack_b(g->b + at * GEMM_COLS, &n->b, n->at + at, least(step, n->depth - at), n->col,
                    n->cols);
    for (size_t row = 0; row < n->p->m; row += GEMM_ROWS)
        multiply_rows(g, n, c, row, least(GEMM_ROWS, n->p->m - row));
}

void cpu_gemm_product(cpu_gemm *g, const cpu_product *p, kernels_type type, const void *a,
                      const void *b, float *c) {
    panel n = {.p = p,
               .a = matrix(a, type, p->transpose_a, p->lda),
               .b = matrix(b, type, p->transpose_b, p->ldb)};
    const size_t step = equal_step(p->depth, GEMM_PANEL);
    for (n.col = 0; n.col < p->n; n.col += GEMM_COLS) {
        n.cols = least(GEMM_COLS, p->n - n.col);
        n.at = 0;
        do {
            n.depth = least(step, p->depth - n.at);
            multiply_panel(g, &n, c);
            n.at += n.depth;
        } while (n.at < p->depth);
    }
}

CPU_CLONES static void narrow_rows(uint16_t *restrict y, size_t stride, const float *restrict x,
                                   size_t rows, size_t cols) {
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < cols; i++) y[row * stride + i] = bf16_of(x[row * cols + i]);
}

void cpu_gemm_narrow(cpu_gemm *g, const cpu_product *p, const uint16_t *a, const uint16_t *b,
                     uint16_t *c) {
    const size_t a_row = p->transpose_a == 'T' ? 1 : p->lda;
    const size_t b_col = p->transpose_b == 'T' ? p->ldb : 1;
    for (size_t row = 0; row < p->m; row += NARROW_ROWS)
        for (size_t col = 0; col < p->n; col += GEMM_COLS) {
            cpu_product part = *p;
            part.m = least(NARROW_ROWS, p->m - row);
            part.n = part.ldc = least(GEMM_COLS, p->n - col);
            cpu_gemm_product(g, &part, KERNELS_BF16, a + row * a_row, b + col * b_col, g->c);
            narrow_rows(c + row * p->ldc + col, p->ldc, g->c, part.m, part.n);
        }
}
#else
int cpu_gemm_wanted(void) { return 0; }
cpu_gemm *cpu_gemm_open(kernels *k) {
    (void)k;
    return NULL;
}
void cpu_gemm_close(kernels *k, cpu_gemm *g) { (void)k, (void)g; }
int cpu_gemm_pays(const cpu_product *p) {
    (void)p;
    return 0;
}
void cpu_gemm_product(cpu_gemm *g, const cpu_product *p, kernels_type type, const void *a,
                      const void *b, float *c) {
    (void)g, (void)p, (void)type, (void)a, (void)b, (void)c;
}
void cpu_gemm_narrow(cpu_gemm *g, const cpu_product *p, const uint16_t *a, const uint16_t *b,
                     uint16_t *c) {
    (void)g, (void)p, (void)a, (void)b, (void)c;
}
#endif
