/* What the parts of attention share: the shape, and the width of tiles. */
#pragma once

#include <math.h>
#include <stdint.h>

#include <type_traits>

#include "cuda/common/device.cuh"

#define LOG2_E 1.44269504f

/* The shape, and where a head's token lies. */
typedef struct attention_view {
    size_t batch, sequence, heads, kv_heads, dim, group;
    size_t window; /* a causal position sees so many keys at most; SIZE_MAX: no limit */
    float inv_root;
    bool causal;
} attention_view;

static inline attention_view view_of(const kernels_attention *s) {
    attention_view v;
    v.batch = s->batch;
    v.sequence = s->sequence;
    v.heads = s->heads;
    v.kv_heads = s->kv_heads;
    v.dim = s->head_dim;
    v.group = s->heads / s->kv_heads;
    v.window = s->causal && s->window ? s->window : SIZE_MAX;
    v.inv_root = 1.0f / sqrtf((float)s->head_dim);
    v.causal = s->causal != 0;
    return v;
}

static inline bool has_window(const attention_view &v) { return v.window != SIZE_MAX; }

/* The first key that a causal position sees. */
template <typename T> static inline __host__ __device__ T first_key_of(T window, T position) {
    return position >= window ? position - window + 1 : 0;
}

/* Behind the last of `sequence` queries that see a key of a window. */
template <typename T>
static inline __host__ __device__ T end_of_queries(T window, T key, T sequence) {
    return window < sequence - key ? key + window : sequence;
}

/* Rows of lse. */
static inline size_t rows_of(const attention_view &v) { return v.batch * v.heads * v.sequence; }

typedef struct attention_gradients {
    float *dq, *dkey, *dvalue;
    const float *dout, *lse, *delta, *q, *key, *value;
} attention_gradients;

enum { TILE = 64, TILES_DIM = 128 }; /* rows of a tile, and the widest head that has one */

/* job(std::integral_constant<int, D>()): tiles of D columns are the narrowest that take `dim`.
 * Nonzero where none do, or where the job's result is. */
template <typename Job> static int by_dim(size_t dim, const Job &job) {
    if (dim <= 32) return job(std::integral_constant<int, 32>());
    if (dim <= 64) return job(std::integral_constant<int, 64>());
    if (dim <= 96) return job(std::integral_constant<int, 96>());
    if (dim <= TILES_DIM) return job(std::integral_constant<int, 128>());
    return 1;
}

/* job(std::integral_constant<bool, whether there is a window>()): kernels are compiled without
 * windows as well, where each register counts. */
template <typename Job> static void by_window(bool windowed, const Job &job) {
    if (windowed)
        job(std::true_type());
    else
        job(std::false_type());
}

static inline __host__ __device__ size_t tiles_of(size_t sequence) {
    return (sequence + TILE - 1) / TILE;
}
