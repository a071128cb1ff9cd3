/* The tile of 6 x 16 sums that stays in registers: 12 of 16 vectors, two more for a row of B and
 * one for an element of A. */
#include <string.h>

#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TILE_INLINE GEMM_TARGET __attribute__((always_inline)) static inline

enum { ROWS = GEMM_TILE_ROWS, COLS = GEMM_TILE_COLS };

typedef struct tile {
    const float *a; /* element (i, k) is a[i * row + k * step] */
    size_t row, step;
    const float *b; /* [depth,COLS] */
    float *c;       /* [rows,COLS], ldc floats apart */
    size_t ldc, depth;
    float alpha;
    int add;
} tile;

/* `rows` is known where this is compiled. */
TILE_INLINE void compute(size_t rows, size_t row, size_t step, const tile *t) {
    const float *a = t->a, *b = t->b;
    const size_t depth = t->depth;
    __m256 low[ROWS], high[ROWS];
#pragma GCC unroll 6
    for (size_t i = 0; i < rows; i++) {
        low[i] = high[i] = _mm256_setzero_ps();
        _mm_prefetch((const char *)(t->c + i * t->ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(t->c + i * t->ldc + COLS - 1), _MM_HINT_T0);
    }
    for (size_t k = depth; k > 0; k--) {
        const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
        for (size_t i = 0; i < rows; i++) {
            const __m256 x = _mm256_broadcast_ss(a + i * row);
            low[i] = _mm256_fmadd_ps(x, b0, low[i]);
            high[i] = _mm256_fmadd_ps(x, b1, high[i]);
        }
        a += step;
        b += COLS;
    }
    const __m256 alpha = _mm256_set1_ps(t->alpha);
#pragma GCC unroll 6
    for (size_t i = 0; i < rows; i++) {
        float *c = t->c + i * t->ldc;
        if (t->add) {
            _mm256_storeu_ps(c, _mm256_fmadd_ps(alpha, low[i], _mm256_loadu_ps(c)));
            _mm256_storeu_ps(c + 8, _mm256_fmadd_ps(alpha, high[i], _mm256_loadu_ps(c + 8)));
        } else {
            _mm256_storeu_ps(c, _mm256_mul_ps(alpha, low[i]));
            _mm256_storeu_ps(c + 8, _mm256_mul_ps(alpha, high[i]));
        }
    }
}

/* Strides that are known where this is compiled leave more registers. */
TILE_INLINE void compute_rows(size_t rows, const tile *t) {
    if (t->row == 1)
        compute(rows, 1, ROWS, t);
    else
        compute(rows, t->row, 1, t);
}

GEMM_TARGET static void compute_tile(size_t rows, const tile *t) {
    switch (rows) {
    case 1:
        compute_rows(1, t);
        break;
    case 2:
        compute_rows(2, t);
        break;
    case 3:
        compute_rows(3, t);
        break;
    case 4:
        compute_rows(4, t);
        break;
    case 5:
        compute_rows(5, t);
        break;
    default:
        compute_rows(6, t);
    }
}

/* Columns that c does not have are computed beside it. */
static void compute_edge(size_t rows, size_t cols, const tile *t) {
    float beside[ROWS * COLS];
    tile whole = *t;
    whole.c = beside;
    whole.ldc = COLS;
    for (size_t i = 0; t->add && i < rows; i++)
        memcpy(beside + i * COLS, t->c + i * t->ldc, cols * sizeof *beside);
    compute_tile(rows, &whole);
    for (size_t i = 0; i < rows; i++)
        memcpy(t->c + i * t->ldc, beside + i * COLS, cols * sizeof *beside);
}

void gemm_block(const gemm_strips *a, const float *b, float *c, size_t ldc, size_t rows,
                size_t cols, size_t depth, float alpha, int add) {
    for (size_t col = 0; col < cols; col += COLS)
        for (size_t row = 0; row < rows; row += ROWS) {
            const size_t high = rows - row < ROWS ? rows - row : ROWS;
            const tile t = {.a = a->at + row / ROWS * a->next,
                            .row = a->row,
                            .step = a->step,
                            .b = b + col * depth,
                            .c = c + row * ldc + col,
                            .ldc = ldc,
                            .depth = depth,
                            .alpha = alpha,
                            .add = add};
            if (cols - col < COLS)
                compute_edge(high, cols - col, &t);
            else
                compute_tile(high, &t);
        }
}
#endif
