#include "models/arena.h"

#include <stdint.h>

static size_t product(arena *a, size_t x, size_t y) {
    size_t out = 0;
    a->overflow |= __builtin_mul_overflow(x, y, &out);
    return out;
}

void *model_arena_take(arena *a, size_t rows, size_t bytes_a_row) {
    size_t bytes = product(a, rows, bytes_a_row), end = 0, at = a->used;
    a->overflow |= __builtin_add_overflow(at, bytes, &end);
    a->overflow |= end > SIZE_MAX - 64;
    a->used = a->overflow ? at : (end + 63) / 64 * 64;
    return a->base ? a->base + at : NULL;
}

float *model_arena_floats(arena *a, size_t rows, size_t cols) {
    return model_arena_take(a, rows, product(a, cols, sizeof(float)));
}

void *model_arena_typed(arena *a, size_t rows, size_t cols, kernels_type type) {
    const size_t bytes = type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    return model_arena_take(a, rows, product(a, cols, bytes));
}

void model_arena_cover(arena *a, const arena *part) {
    a->used = part->used > a->used ? part->used : a->used;
    a->overflow |= part->overflow;
}
