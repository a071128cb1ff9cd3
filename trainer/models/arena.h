/* One stretch of memory, laid out twice by the same functions: first to learn its size, then for
 * its addresses. Everything lies on 64-byte boundaries. */
#pragma once

#include <stddef.h>

#include "kernels/kernels.h"

typedef struct arena {
    char *base; /* NULL while only the size is asked for */
    size_t used;
    int overflow;
} arena;

/* NULL while only the size is asked for. */
void *model_arena_take(arena *a, size_t rows, size_t bytes_a_row);
float *model_arena_floats(arena *a, size_t rows, size_t cols);
void *model_arena_typed(arena *a, size_t rows, size_t cols, kernels_type type);

/* `part` began as a copy of `a` and shares its place with others that did. */
void model_arena_cover(arena *a, const arena *part);
