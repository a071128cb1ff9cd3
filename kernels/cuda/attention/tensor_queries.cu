/* Attention on tensor cores: the gradient of the queries. As in the forward pass, a block of
 * four warps computes 128 queries of a head, 32 per warp, and goes through the keys in ascending
 * order. It loads only 32 keys at a time, since registers are scarce. */
#include "cuda/attention/tensor_tiles.cuh"

enum { WARPS = 4, BLOCK = 32 * WARPS, QUERIES = 32 * WARPS, KEYS = 32 };
static_assert((int)BLOCK == QUERIES, "one thread per row of terms");

/* Returns the terms of the warp's row 16 m + r + 8 i, where r is the thread's number in the warp
 * divided by 4. Terms are in shared memory, because registers are scarce. */
static __device__ __forceinline__ float2 terms_of(const float2 *terms, int m, int i) {
    return terms[16 * m + lane_of() / 4 + 8 * i];
}

static __device__ __forceinline__ void begin_with_delta(float (&d)[2][KEYS / 8][4],
                                                        const float2 *terms) {
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float minus_delta = terms_of(terms, m, i / 2).y;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) d[m][n][i] = minus_delta;
        }
}

/* On entry s contains the scores, and d is dout . value - delta. Replaces d by the gradient of the
 * scores, without the factor `root`. */
static __device__ __forceinline__ void grade_keys(const bf16_shape &shape,
                                                  float (&d)[2][KEYS / 8][4],
                                                  const float (&s)[2][KEYS / 8][4],
                                                  const float2 *terms) {
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float lse = terms_of(terms, m, i / 2).x;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                d[m][n][i] *= power_of_2(fmaf(shape.scale, s[m][n][i], -lse));
        }
}

/* Returns the terms of a token, or 0 beyond the sequence. */
static __device__ __forceinline__ float2 terms_at(const bf16_shape &s, const bf16_sources &in,
                                                  const block_place &p, unsigned token) {
    const float2 *head = head_of(in.terms, s, p.batch * s.heads + p.head, 1, 0, 1);
    return token < s.sequence ? head[token] : float2{0.0f, 0.0f};
}

/* Shared memory: q [QUERIES], dout [QUERIES], two buffers of key [KEYS] and value [KEYS], terms
 * [QUERIES]. dq may be q: a block reads only the rows that it writes. */
template <int DIM, int LIMITS>
static __global__ void __launch_bounds__(BLOCK, 2)
    query_kernel(bf16_shape s, bf16_sources in, float *dq) {
    typedef rows_of_tile<DIM> rows;
    enum { TILE_BYTES = QUERIES * rows::BYTES, STAGE = 2 * KEYS * rows::BYTES };
    const block_place p = block_place_of(s, s.heads, QUERIES, s.causal);
    const unsigned first = p.first + warp_of() * 32, kv_head = p.head / s.group;
    const unsigned q_stride = s.heads * s.width, kv_stride = s.kv_heads * s.width;
    const unsigned keys = s.causal ? min(p.first + QUERIES, s.sequence) : s.sequence;
    if (LIMITS == IN_DOCUMENTS) s.places += (size_t)p.batch * s.sequence;
    const unsigned begin = first_keys<LIMITS>(s, p.first, KEYS);
    const uint16_t *key = head_of(in.key, s, p.batch, s.kv_heads, kv_head, s.width);
    const uint16_t *value = head_of(in.value, s, p.batch, s.kv_heads, kv_head, s.width);
    const shared_at tile = shared_address(dynamic_shared()), stages = tile + 2 * TILE_BYTES;
    const shared_at q = rows::left(tile, warp_of() * 32), dout = q + TILE_BYTES;
    float2 *terms = (float2 *)dynamic_shared() + (2 * TILE_BYTES + 2 * STAGE) / 8;
    const float factor[2][2] = {{s.root, s.root}, {s.root, s.root}};
    float o[2][DIM / 8][4];
    clear(o);
    terms[threadIdx.x] = terms_at(s, in, p, p.first + threadIdx.x);
    terms += warp_of() * 32;
    fetch<DIM, QUERIES, BLOCK>(tile, s, head_of(in.q, s, p.batch, s.heads, p.head, s.width),
                               q_stride, p.first);
    fetch<DIM, QUERIES, BLOCK>(tile + TILE_BYTES, s,
                               head_of(in.dout, s, p.batch, s.heads, p.head, s.width), q_stride,
                               p.first);
    fetch<DIM, KEYS, BLOCK>(stages, s, key, kv_stride, begin);
    fetch<DIM, KEYS, BLOCK>(stages + STAGE / 2, s, value, kv_stride, begin);
    copies_close();
    for (unsigned at = begin, turn = 0; at < keys; at += KEYS, turn ^= 1) {
        const shared_at stage = stages + turn * STAGE, next = stages + (turn ^ 1) * STAGE;
        float x[2][KEYS / 8][4], d[2][KEYS / 8][4];
        copies_wait<0>();
        __syncthreads(); /* this tile has arrived, and no warp still reads the previous one */
        if (at + KEYS < keys) {
            fetch<DIM, KEYS, BLOCK>(next, s, key, kv_stride, at + KEYS);
            fetch<DIM, KEYS, BLOCK>(next + STAGE / 2, s, value, kv_stride, at + KEYS);
            copies_close();
        }
        if (first >= s.sequence || none_seen<LIMITS>(s, first, at, KEYS))
            continue; /* the warp has no row of the sequence, or its rows see no key of this tile */
        clear(x);
        begin_with_delta(d, terms);
        add_products<DIM>(x, q, rows::right(stage));
        add_products<DIM>(d, dout, rows::right(stage + STAGE / 2));
        if (!all_seen<LIMITS>(s, first, at, KEYS)) hide<LIMITS>(s, x, first, at);
        grade_keys(s, d, x, terms);
        add_weighted<DIM>(o, d, rows::across(stage));
    }
    put_tile<DIM>(s, head_of(dq, s, p.batch, s.heads, p.head, s.dim), s.heads * s.dim, first, o,
                  factor, tile + warp_of() * 32 * rows::BYTES);
}

void tensor_queries_run(kernels *k, const bf16_shape &s, const bf16_sources &in, float *dq) {
    by_dim(s.dim, [&](auto dim) {
        enum { DIM = decltype(dim)::value };
        enum { BYTES = (2 * QUERIES + 4 * KEYS) * rows_of_tile<DIM>::BYTES + QUERIES * 8 };
        static_assert((int)BYTES <= MOST_SHARED, "there is room");
        const size_t tiles = (s.sequence + QUERIES - 1) / QUERIES;
        by_limits(limits_of(s), [&](auto limits) {
            launch(k, query_kernel<DIM, decltype(limits)::value>, tiles * s.batch * s.heads, BLOCK,
                   BYTES, s, in, dq);
        });
        return 0;
    });
}
