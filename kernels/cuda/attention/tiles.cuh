/* Attention in tiles of TILE queries by TILE keys (Dao et al. 2022; Dao 2023), over an engine E
 * that multiplies tiles in shared memory, which tiles.cu has for each width of heads. A
 * block of threads owns a tile of queries (the result, dq) or of keys (dkey and dvalue, over the
 * heads that share them in order) and goes through the others in ascending order. So every sum has
 * one order, which depends on the head_dim and the place in the sequence alone.
 *
 * Of a tile of products each thread has s[E::ROWS][E::COLS], at rows E::row(i) and columns
 * E::col(j); of rows times head_dim it has o[E::ROWS][E::OUT] at columns E::out_col(j). E::LANES
 * neighbouring threads have the same rows. E::..._BLOCKS: that many blocks of a kernel share a
 * multiprocessor, for which registers have to be left. Exponentials are of base 2. */
#ifndef KERNELS_CUDA_ATTENTION_TILES_CUH
#define KERNELS_CUDA_ATTENTION_TILES_CUH

#include "cuda/attention/attention.cuh"

/* The arrays that tiles are taken from, as the engine wants them. */
typedef struct tile_sources {
    const void *q, *key, *value, *dout;
} tile_sources;

/* A block's tile and head; heads are those of queries, or of keys. */
typedef struct tile_place {
    size_t batch, head, first;
} tile_place;

/* Long rows first, so that the last blocks to run are short ones: `backwards` where later tiles
 * have more to do. */
static __device__ tile_place tile_place_of(const view &v, size_t heads, bool backwards) {
    tile_place p;
    size_t tile = blockIdx.x / (v.batch * heads), rest = blockIdx.x % (v.batch * heads);
    p.first = (backwards ? tiles_of(v.sequence) - 1 - tile : tile) * TILE;
    p.batch = rest / heads;
    p.head = rest % heads;
    return p;
}

/* 32 bits are enough here, and cheaper. */
static __device__ __forceinline__ bool sees(const view &v, unsigned query, unsigned key) {
    return key < (unsigned)v.sequence && query < (unsigned)v.sequence &&
           (!v.causal || key <= query);
}

/* Whether every query of the tile sees every key. */
static __device__ bool all_see(const view &v, size_t first_query, size_t first_key) {
    return max(first_query, first_key) + TILE <= v.sequence &&
           (!v.causal || first_key + TILE <= first_query + 1);
}

/* The sum, or the largest, of a row's values on all its threads. */
template <typename E> static __device__ float row_sum(float x) {
#pragma unroll
    for (int mask = E::LANES / 2; mask; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

template <typename E> static __device__ float row_max(float x) {
#pragma unroll
    for (int mask = E::LANES / 2; mask; mask /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
    return x;
}

template <typename E> static __device__ void clear(float (&o)[E::ROWS][E::OUT]) {
#pragma unroll
    for (int i = 0; i < E::ROWS; i++)
#pragma unroll
        for (int j = 0; j < E::OUT; j++) o[i][j] = 0.0f;
}

/* to[batch, sequence, heads, dim]: the tile's rows, each times factor[i]. */
template <typename E>
static __device__ void put_rows(const view &v, float *to, const tile_place &p, size_t heads,
                                const float (&o)[E::ROWS][E::OUT], const float (&factor)[E::ROWS]) {
#pragma unroll
    for (int i = 0; i < E::ROWS; i++) {
        size_t token = p.first + E::row(i);
        float *row = to + ((p.batch * v.sequence + token) * heads + p.head) * v.dim;
        if (token >= v.sequence) continue;
#pragma unroll
        for (int j = 0; j < E::OUT; j++)
            if (E::out_col(j) < v.dim) row[E::out_col(j)] = factor[i] * o[i][j];
    }
}

/* Online softmax (Milakov and Gimelshein 2018): s becomes the row's weights beside `most`, the
 * largest score so far; sum and o are scaled down as that grows. Every row sees key 0, so that
 * `most` is a number from the first tile on; a row behind the sequence is NaN, and not put
 * anywhere. */
template <typename E>
static __device__ void soften(const view &v, float (&s)[E::ROWS][E::COLS], float (&most)[E::ROWS],
                              float (&sum)[E::ROWS], float (&o)[E::ROWS][E::OUT], size_t first,
                              size_t first_key) {
    const float scale = v.inv_root * LOG2_E;
    const bool whole = all_see(v, first, first_key);
    const unsigned row = (unsigned)first, col = (unsigned)first_key;
#pragma unroll
    for (int i = 0; i < E::ROWS; i++) {
        float above = most[i], part = 0.0f;
#pragma unroll
        for (int j = 0; j < E::COLS; j++) {
            bool seen = whole || sees(v, row + E::row(i), col + E::col(j));
            s[i][j] = seen ? scale * s[i][j] : -INFINITY;
            above = fmaxf(above, s[i][j]);
        }
        above = row_max<E>(above);
        const float shrink = exp2f(most[i] - above);
#pragma unroll
        for (int j = 0; j < E::COLS; j++) {
            s[i][j] = exp2f(s[i][j] - above);
            part += s[i][j];
        }
        most[i] = above;
        sum[i] = sum[i] * shrink + row_sum<E>(part);
#pragma unroll
        for (int j = 0; j < E::OUT; j++) o[i][j] *= shrink;
    }
}

template <typename E>
static __global__ void __launch_bounds__(E::BLOCK, E::FORWARD_BLOCKS)
    forward_tile_kernel(view v, tile_sources in, float *out, float *lse) {
    typename E::element *q = E::tile(0), *key = E::tile(1), *value = E::tile(2);
    const tile_place p = tile_place_of(v, v.heads, v.causal);
    const size_t kv_head = p.head / v.group;
    const size_t keys = v.causal ? min(p.first + TILE, v.sequence) : v.sequence;
    float most[E::ROWS], sum[E::ROWS], factor[E::ROWS], o[E::ROWS][E::OUT];
    for (int i = 0; i < E::ROWS; i++) {
        most[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    clear<E>(o);
    E::fetch(q, v, in.q, p.batch, p.head, v.heads, p.first);
    for (size_t first = 0; first < keys; first += TILE) {
        float s[E::ROWS][E::COLS];
        E::fetch(key, v, in.key, p.batch, kv_head, v.kv_heads, first);
        E::fetch(value, v, in.value, p.batch, kv_head, v.kv_heads, first);
        E::arrive();
        E::scores(s, q, key);
        soften<E>(v, s, most, sum, o, p.first, first);
        E::weigh(o, s, value, E::spare(3));
        __syncthreads();
    }
    for (int i = 0; i < E::ROWS; i++) {
        size_t token = p.first + E::row(i);
        factor[i] = 1.0f / sum[i];
        if (token < v.sequence && threadIdx.x % E::LANES == 0)
            lse[(p.batch * v.heads + p.head) * v.sequence + token] =
                (float)((double)most[i] / 1.4426950408889634 + log((double)sum[i]));
    }
    put_rows<E>(v, out, p, v.heads, o, factor);
}

/* From s, the products of queries and keys, and d, those of dout and values: the softmax into s,
 * the gradient of the scores (but for its factor inv_root) into d. lse is of base 2. */
static __device__ __forceinline__ void grade(const view &v, float *s, float *d, bool seen,
                                             float lse, float delta) {
    *s = seen ? exp2f(v.inv_root * LOG2_E * *s - lse) : 0.0f;
    *d = *s * (*d - delta);
}

template <typename E>
static __global__ void __launch_bounds__(E::BLOCK, E::QUERY_BLOCKS)
    query_tile_kernel(view v, tile_sources in, float *dq, const float *lse, const float *delta) {
    typename E::element *q = E::tile(0), *dout = E::tile(1), *key = E::tile(2), *value = E::tile(3);
    const tile_place p = tile_place_of(v, v.heads, v.causal);
    const size_t kv_head = p.head / v.group;
    const size_t keys = v.causal ? min(p.first + TILE, v.sequence) : v.sequence;
    float row_lse[E::ROWS], row_delta[E::ROWS], factor[E::ROWS], o[E::ROWS][E::OUT];
    for (int i = 0; i < E::ROWS; i++) {
        size_t token = p.first + E::row(i);
        size_t at = (p.batch * v.heads + p.head) * v.sequence + token;
        row_lse[i] = token < v.sequence ? lse[at] * LOG2_E : 0.0f;
        row_delta[i] = token < v.sequence ? delta[at] : 0.0f;
        factor[i] = v.inv_root;
    }
    clear<E>(o);
    E::fetch(q, v, in.q, p.batch, p.head, v.heads, p.first);
    E::fetch(dout, v, in.dout, p.batch, p.head, v.heads, p.first);
    for (size_t first = 0; first < keys; first += TILE) {
        float s[E::ROWS][E::COLS], d[E::ROWS][E::COLS];
        E::fetch(key, v, in.key, p.batch, kv_head, v.kv_heads, first);
        E::fetch(value, v, in.value, p.batch, kv_head, v.kv_heads, first);
        E::arrive();
        E::scores(s, q, key);
        E::scores(d, dout, value);
        const bool whole = all_see(v, p.first, first);
        const unsigned row = (unsigned)p.first, col = (unsigned)first;
#pragma unroll
        for (int i = 0; i < E::ROWS; i++)
#pragma unroll
            for (int j = 0; j < E::COLS; j++) {
                bool seen = whole || sees(v, row + E::row(i), col + E::col(j));
                grade(v, &s[i][j], &d[i][j], seen, row_lse[i], row_delta[i]);
            }
        E::weigh(o, d, key, E::spare(4));
        __syncthreads();
    }
    put_rows<E>(v, dq, p, v.heads, o, factor);
}

/* Rows are keys here, and columns queries. What the queries of a tile need stands behind the
 * engine's shared memory: lse [TILE], delta [TILE]. */
template <typename E>
static __global__ void __launch_bounds__(E::BLOCK, E::KEY_BLOCKS)
    key_tile_kernel(view v, tile_sources in, float *dkey, float *dvalue, const float *lse,
                    const float *delta) {
    typename E::element *key = E::tile(0), *value = E::tile(1), *q = E::tile(2), *dout = E::tile(3);
    float *tile_lse = E::behind(4), *tile_delta = tile_lse + TILE;
    const tile_place p = tile_place_of(v, v.kv_heads, false);
    float root[E::ROWS], one[E::ROWS], dk[E::ROWS][E::OUT], dv[E::ROWS][E::OUT];
    for (int i = 0; i < E::ROWS; i++) {
        root[i] = v.inv_root;
        one[i] = 1.0f;
    }
    clear<E>(dk);
    clear<E>(dv);
    E::fetch(key, v, in.key, p.batch, p.head, v.kv_heads, p.first);
    E::fetch(value, v, in.value, p.batch, p.head, v.kv_heads, p.first);
    for (size_t head = p.head * v.group; head < (p.head + 1) * v.group; head++)
        for (size_t first = v.causal ? p.first : 0; first < v.sequence; first += TILE) {
            float s[E::ROWS][E::COLS], d[E::ROWS][E::COLS];
            E::fetch(q, v, in.q, p.batch, head, v.heads, first);
            E::fetch(dout, v, in.dout, p.batch, head, v.heads, first);
            if (threadIdx.x < TILE) {
                size_t token = first + threadIdx.x;
                size_t at = (p.batch * v.heads + head) * v.sequence + token;
                tile_lse[threadIdx.x] = token < v.sequence ? lse[at] * LOG2_E : 0.0f;
                tile_delta[threadIdx.x] = token < v.sequence ? delta[at] : 0.0f;
            }
            E::arrive();
            E::scores(s, key, q);
            E::scores(d, value, dout);
            const bool whole = all_see(v, first, p.first);
            const unsigned row = (unsigned)p.first, col = (unsigned)first;
#pragma unroll
            for (int i = 0; i < E::ROWS; i++)
#pragma unroll
                for (int j = 0; j < E::COLS; j++) {
                    bool seen = whole || sees(v, col + E::col(j), row + E::row(i));
                    grade(v, &s[i][j], &d[i][j], seen, tile_lse[E::col(j)], tile_delta[E::col(j)]);
                }
            E::weigh(dv, s, dout, E::spare(4));
            E::weigh(dk, d, q, E::spare(4));
            __syncthreads();
        }
    put_rows<E>(v, dkey, p, v.kv_heads, dk, root);
    put_rows<E>(v, dvalue, p, v.kv_heads, dv, one);
}

template <typename E>
static void tiles_forward(kernels *k, const view &v, const tile_sources &in, float *out,
                          float *lse) {
    const size_t blocks = tiles_of(v.sequence) * v.batch * v.heads;
    launch(k, forward_tile_kernel<E>, blocks, E::BLOCK, E::shared_bytes(3), v, in, out, lse);
}

/* What the kernel that takes most takes. */
template <typename E> static size_t tiles_shared() {
    return E::shared_bytes(4) + 2 * TILE * sizeof(float);
}

/* The queries last: dq may be q, of which a block then reads only the rows that it writes. */
template <typename E>
static void tiles_backward(kernels *k, const view &v, const tile_sources &in,
                           const attention_gradients &g) {
    const size_t tiles = tiles_of(v.sequence) * v.batch;
    launch(k, key_tile_kernel<E>, tiles * v.kv_heads, E::BLOCK, tiles_shared<E>(), v, in, g.dkey,
           g.dvalue, g.lse, g.delta);
    launch(k, query_tile_kernel<E>, tiles * v.heads, E::BLOCK, E::shared_bytes(4), v, in, g.dq,
           g.lse, g.delta);
}

/* job(engine), of the engine's smallest form that takes `dim`; nonzero where there is none, or
 * where blocks of this device have too little shared memory. */
template <template <int> class Engine, typename Job>
static int by_engine(kernels *k, size_t dim, const Job &job) {
    return by_dim(dim, [&](auto tiles_dim) {
        typedef Engine<decltype(tiles_dim)::value> E;
        if (tiles_shared<E>() > cuda_of(k)->most_shared) return 1;
        job(E());
        return 0;
    });
}

#endif
