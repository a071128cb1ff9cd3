/* Inside our own matrix products; cpu.h has what others call.
 *
 * After Goto and van de Geijn 2008: B is packed into slivers of 16 columns that pass through the
 * first cache, a block of A stays in the second, and a tile of 6 x 16 sums stays in registers. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include "cpu.h"

enum {
    GEMM_TILE_ROWS = 6,
    GEMM_TILE_COLS = 16,
    GEMM_ROWS = 96,   /* of a block of A: a multiple of a tile's */
    GEMM_COLS = 512,  /* of a panel of B: likewise */
    GEMM_PANEL = 768, /* its depth at most */
    GEMM_DEPTH = 384, /* at most, of what a tile adds up at once */
};

#define GEMM_TARGET __attribute__((target("avx2,fma")))

/* An operand of a product, already transposed where asked: element (i, j) is
 * data[i * row + j * col]. One of the strides is 1. */
typedef struct gemm_matrix {
    const void *data;
    kernels_type type;
    size_t row, col;
} gemm_matrix;

/* A packed block of A, tile by tile: element (i, k) of a tile is at[i * row + k * step]. */
typedef struct gemm_strips {
    const float *at;
    size_t row, step;
    size_t next; /* from one tile to the next */
} gemm_strips;

/* Packs rows [first, first + rows) of a, at depths [from, from + depth), into `to`
 * [GEMM_ROWS * GEMM_DEPTH]. */
gemm_strips gemm_pack_a(float *to, const gemm_matrix *a, size_t first, size_t rows, size_t from,
                        size_t depth);
/* Packs columns [first, first + cols) of b, at depths [from, from + depth), sliver by sliver
 * [depth,GEMM_TILE_COLS]; columns that the last one lacks are 0. */
void gemm_pack_b(float *to, const gemm_matrix *b, size_t from, size_t depth, size_t first,
                 size_t cols);
/* c[rows,cols] = (or +=, with `add`) alpha a b */
void gemm_block(const gemm_strips *a, const float *b, float *c, size_t ldc, size_t rows,
                size_t cols, size_t depth, float alpha, int add);

#endif
