/* Packing for gemm.c. bf16 is widened on the way, which is exact. */
#include "gemm.h"
#include "lanes.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define PACK_INLINE GEMM_TARGET __attribute__((always_inline)) static inline

enum { ROWS = GEMM_TILE_ROWS, COLS = GEMM_TILE_COLS };

static const void *element(const gemm_matrix *m, size_t i, size_t j) {
    const size_t size = m->type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (const char *)m->data + (i * m->row + j * m->col) * size;
}

/* Elements [at, at + 8) of x. */
PACK_INLINE __m256 load(const void *x, size_t at, kernels_type type) {
    if (type == KERNELS_F32) return _mm256_loadu_ps((const float *)x + at);
    const __m128i narrow = _mm_loadu_si128((const __m128i *)((const uint16_t *)x + at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}

PACK_INLINE float load_one(const void *x, size_t at, kernels_type type) {
    return type == KERNELS_F32 ? ((const float *)x)[at] : bf16_wide(((const uint16_t *)x)[at]);
}

/* to[n] = x[n] */
PACK_INLINE void copy_row(float *to, const void *x, size_t n, kernels_type type) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, load(x, i, type));
    for (; i < n; i++) to[i] = load_one(x, i, type);
}

/* to[j * COLS + i] = x[i * stride + j] for 8 x 8 elements */
PACK_INLINE void transpose(float *to, const void *x, size_t stride, kernels_type type) {
    __m256 r[8], s[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) r[i] = load(x, i * stride, type);
#pragma GCC unroll 4
    for (size_t i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * COLS, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * COLS, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

/* A sliver [depth,COLS] of a matrix whose rows, along the depth, are contiguous: of its transpose.
 */
PACK_INLINE void pack_turned(float *to, const gemm_matrix *b, size_t from, size_t depth,
                             size_t first, size_t cols, kernels_type type) {
    const void *x = element(b, from, first);
    const size_t whole = cols == COLS ? depth / 8 * 8 : 0;
    for (size_t k = 0; k < whole; k += 8)
        for (size_t half = 0; half < COLS; half += 8)
            transpose(to + k * COLS + half, element(b, from + k, first + half), b->col, type);
    for (size_t k = whole; k < depth; k++)
        for (size_t j = 0; j < COLS; j++)
            to[k * COLS + j] = j < cols ? load_one(x, j * b->col + k, type) : 0.0f;
}

/* Rows [k, end) of a sliver of a matrix whose rows are contiguous. */
PACK_INLINE void pack_straight(float *to, const void *x, size_t stride, size_t k, size_t end,
                               size_t cols, kernels_type type) {
    for (; k < end; k++)
        if (cols == COLS) {
            _mm256_storeu_ps(to + k * COLS, load(x, k * stride, type));
            _mm256_storeu_ps(to + k * COLS + 8, load(x, k * stride + 8, type));
        } else {
            for (size_t j = 0; j < COLS; j++)
                to[k * COLS + j] = j < cols ? load_one(x, k * stride + j, type) : 0.0f;
        }
}

/* Some rows at a time, so that memory is read and written in stretches. */
PACK_INLINE void pack_rows(float *to, const gemm_matrix *b, size_t from, size_t depth, size_t first,
                           size_t cols, kernels_type type) {
    enum { AT_ONCE = 8 };
    for (size_t k = 0; k < depth; k += AT_ONCE)
        for (size_t col = 0; col < cols; col += COLS)
            pack_straight(to + col * depth, element(b, from, first + col), b->row, k,
                          depth - k < AT_ONCE ? depth : k + AT_ONCE,
                          cols - col < COLS ? cols - col : COLS, type);
}

PACK_INLINE void pack_b_of(float *to, const gemm_matrix *b, size_t from, size_t depth, size_t first,
                           size_t cols, kernels_type type) {
    if (b->row != 1) {
        pack_rows(to, b, from, depth, first, cols, type);
        return;
    }
    for (size_t col = 0; col < cols; col += COLS)
        pack_turned(to + col * depth, b, from, depth, first + col,
                    cols - col < COLS ? cols - col : COLS, type);
}

GEMM_TARGET void gemm_pack_b(float *to, const gemm_matrix *b, size_t from, size_t depth,
                             size_t first, size_t cols) {
    if (b->type == KERNELS_F32)
        pack_b_of(to, b, from, depth, first, cols, KERNELS_F32);
    else
        pack_b_of(to, b, from, depth, first, cols, KERNELS_BF16);
}

/* to[6] = x[6], or the first `rows` of them */
PACK_INLINE void copy_column(float *to, const void *x, size_t at, size_t rows, int whole,
                             kernels_type type) {
    if (!whole) {
        for (size_t i = 0; i < rows; i++) to[i] = load_one(x, at + i, type);
        return;
    }
    const __m256 v = load(x, at, type);
    _mm_storeu_ps(to, _mm256_castps256_ps128(v));
    _mm_storel_pi((__m64 *)(to + 4), _mm256_extractf128_ps(v, 1));
}

/* Tiles [depth,ROWS] of a matrix whose columns are contiguous. */
PACK_INLINE void pack_columns(float *to, const gemm_matrix *a, size_t first, size_t rows,
                              size_t from, size_t depth, kernels_type type) {
    for (size_t k = 0; k < depth; k++) {
        const void *x = element(a, first, from + k);
        for (size_t row = 0; row < rows; row += ROWS)
            copy_column(to + row * depth + k * ROWS, x, row, rows - row < ROWS ? rows - row : ROWS,
                        row + 8 <= rows, type);
    }
}

PACK_INLINE gemm_strips pack_a_of(float *to, const gemm_matrix *a, size_t first, size_t rows,
                                  size_t from, size_t depth, kernels_type type) {
    if (a->row == 1) {
        pack_columns(to, a, first, rows, from, depth, type);
        return (gemm_strips){.at = to, .row = 1, .step = ROWS, .next = ROWS * depth};
    }
    for (size_t i = 0; i < rows; i++)
        copy_row(to + i * depth, element(a, first + i, from), depth, type);
    return (gemm_strips){.at = to, .row = depth, .step = 1, .next = ROWS * depth};
}

GEMM_TARGET gemm_strips gemm_pack_a(float *to, const gemm_matrix *a, size_t first, size_t rows,
                                    size_t from, size_t depth) {
    if (a->type == KERNELS_F32) return pack_a_of(to, a, first, rows, from, depth, KERNELS_F32);
    return pack_a_of(to, a, first, rows, from, depth, KERNELS_BF16);
}
#endif
