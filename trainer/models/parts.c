#include "models/parts.h"

#include <stdint.h>

static size_t product(arena *a, size_t x, size_t y) {
    size_t out = 0;
    a->overflow |= __builtin_mul_overflow(x, y, &out);
    return out;
}

void *model_arena_allocate(arena *a, size_t rows, size_t bytes_a_row) {
    size_t bytes = product(a, rows, bytes_a_row), end = 0, at = a->used;
    a->overflow |= __builtin_add_overflow(at, bytes, &end);
    a->overflow |= end > SIZE_MAX - 64;
    a->used = a->overflow ? at : (end + 63) / 64 * 64;
    return a->base ? a->base + at : NULL;
}

float *model_arena_floats(arena *a, size_t rows, size_t cols) {
    return model_arena_allocate(a, rows, product(a, cols, sizeof(float)));
}

void *model_arena_typed(arena *a, size_t rows, size_t cols, kernels_type type) {
    const size_t bytes = type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    return model_arena_allocate(a, rows, product(a, cols, bytes));
}

void model_arena_cover(arena *a, const arena *part) {
    a->used = part->used > a->used ? part->used : a->used;
    a->overflow |= part->overflow;
}

/* The cache stores a layer's keys and values in the layout that attention reads, so nothing is
 * copied. */

void model_cache_lay_out(model_run *run, arena *a) {
    const model *m = run->m;
    run->cache.memory = model_arena_typed(a, 2 * m->c.layers * run->cache.capacity, model_kv_dim(m),
                                          model_heads_type(m));
}

/* Array 2 * layer has the layer's keys, and the next array has its values. */
static void *row_at(const model_run *run, size_t array, size_t token) {
    const size_t size = model_heads_type(run->m) == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    const size_t row = array * run->cache.capacity + token;
    return (char *)run->cache.memory + row * model_kv_dim(run->m) * size;
}

kv_rows model_cache_rows(model_run *run, size_t layer) {
    block_run *b = &run->blocks[layer];
    if (run->cache.capacity == 0) return (kv_rows){run->attention.key, b->value};
    run->attention.key = row_at(run, 2 * layer, run->cache.past);
    b->value = row_at(run, 2 * layer + 1, run->cache.past);
    return (kv_rows){row_at(run, 2 * layer, 0), row_at(run, 2 * layer + 1, 0)};
}
