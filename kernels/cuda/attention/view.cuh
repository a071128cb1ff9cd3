/* Definitions that all kernels of attention share: the shape, which keys a query sees, and the
 * width of tiles. */
#pragma once

#include <math.h>
#include <stdint.h>

#include <type_traits>

#include "cuda/common/device.cuh"

#define LOG2_E 1.44269504f

/* The shape of attention, as kernels use it. */
typedef struct attention_view {
    size_t batch, sequence, heads, kv_heads, dim, group;
    size_t window;         /* the most keys that a causal position sees; SIZE_MAX: no limit */
    const int32_t *places; /* [batch, sequence] each token's position in its document; kernels point
                              it at their own sequence; NULL: a sequence is one document */
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
    v.window = s->causal && s->window && s->window < UINT32_MAX ? s->window : SIZE_MAX;
    v.places = s->causal ? s->places : NULL;
    v.inv_root = 1.0f / sqrtf((float)s->head_dim);
    v.causal = s->causal != 0;
    return v;
}

/* The reasons why a causal position might not see all keys up to its own. Kernels are compiled for
 * each case, because a case with fewer limits needs fewer registers. */
typedef enum attention_limits {
    NO_LIMITS,
    IN_WINDOWS,
    IN_DOCUMENTS, /* in documents, and in windows, which may be unlimited */
} attention_limits;

/* In this function and those below, s is an attention_view or a bf16_shape. */
template <typename S> static attention_limits limits_of(const S &s) {
    return s.places ? IN_DOCUMENTS : ~s.window ? IN_WINDOWS : NO_LIMITS;
}

/* Returns the largest number of keys that a causal query can see: the key at its own position, and
 * those before it. */
template <int LIMITS, typename S, typename T>
static inline __device__ T sight_of(const S &s, T query) {
    return LIMITS == IN_DOCUMENTS ? min((T)s.window, (T)s.places[query] + 1) : (T)s.window;
}

/* Returns the first key that a causal query sees. */
template <int LIMITS, typename S, typename T>
static inline __device__ T first_key_of(const S &s, T query) {
    const T sight = sight_of<LIMITS>(s, query);
    return query >= sight ? query - sight + 1 : 0;
}

/* Returns the end of the document that contains the key: the first later token whose document
 * begins after the key. */
template <typename S, typename T> static __device__ T end_of_document(const S &s, T key) {
    T low = key + 1, high = (T)s.sequence;
    while (low < high) {
        const T middle = low + (high - low) / 2;
        if (middle - (T)s.places[middle] > key)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Returns the end of the queries that see the key. */
template <int LIMITS, typename S, typename T>
static inline __device__ T end_of_queries(const S &s, T key) {
    const T sequence = (T)s.sequence, window = (T)s.window;
    const T end = window < sequence - key ? key + window : sequence;
    return LIMITS == IN_DOCUMENTS ? min(end, end_of_document(s, key)) : end;
}

/* Returns the number of rows of lse. */
static inline size_t rows_of(const attention_view &v) { return v.batch * v.heads * v.sequence; }

typedef struct attention_gradients {
    float *dq, *dkey, *dvalue;
    const float *dout, *lse, *delta, *q, *key, *value;
} attention_gradients;

enum { TILE = 64, TILES_DIM = 128 }; /* rows of a tile, and the widest head that fits into it */

/* Calls job(std::integral_constant<int, D>()), where D is the width of the narrowest tiles that
 * have room for `dim` columns. Returns nonzero if even the widest tiles are too narrow, or if the
 * job returns nonzero. */
template <typename Job> static int by_dim(size_t dim, const Job &job) {
    if (dim <= 32) return job(std::integral_constant<int, 32>());
    if (dim <= 64) return job(std::integral_constant<int, 64>());
    if (dim <= 96) return job(std::integral_constant<int, 96>());
    if (dim <= TILES_DIM) return job(std::integral_constant<int, 128>());
    return 1;
}

/* Calls job(std::integral_constant<int, limits>()). */
template <typename Job> static void by_limits(attention_limits limits, const Job &job) {
    if (limits == IN_DOCUMENTS)
        job(std::integral_constant<int, IN_DOCUMENTS>());
    else if (limits == IN_WINDOWS)
        job(std::integral_constant<int, IN_WINDOWS>());
    else
        job(std::integral_constant<int, NO_LIMITS>());
}

static inline __host__ __device__ size_t tiles_of(size_t sequence) {
    return (sequence + TILE - 1) / TILE;
}
