/* Attention on tensor cores: the gradients of keys and values. A block of eight warps handles
 * 128 keys of a head, 16 per warp. A warp holds its keys and values in registers, as left operands.
 * The block goes in order through the queries of the heads that share these keys, 64 at a time.
 * While it computes with one tile of queries, the next tiles are copied. In this file rows are
 * keys, and columns are queries. */
#include "cuda/attention/tensor_tiles.cuh"

enum { WARPS = 8, BLOCK = 32 * WARPS, KEYS = 16 * WARPS, QUERIES = 64, STAGES = 3 };
/* A warp computes with PART queries of a tile at a time; more would need too many registers. */
enum { PART = 16 };

/* A stage of shared memory: q [QUERIES], dout [QUERIES], terms [QUERIES]. At first, the block's
 * keys and values are loaded through the memory of all stages, which is large enough. */
template <int DIM> struct stage_of {
    enum { TILE_BYTES = QUERIES * DIM * 2 };
    enum { DOUT = TILE_BYTES, TERMS = 2 * TILE_BYTES, BYTES = TERMS + QUERIES * 8 };
    static_assert((int)STAGES * BYTES >= 2 * KEYS * DIM * 2, "keys and values fit");
};

/* A tile of queries of a head, starting at token `first`. */
typedef struct query_tile {
    unsigned head, first;
} query_tile;

/* Returns the first query that the block reads of each head. */
static __device__ __forceinline__ unsigned first_query(const bf16_shape &s, const block_place &p) {
    return s.causal ? p.first : 0;
}

/* Returns the end of the queries that the block reads of each head: no later query sees any of the
 * block's keys. */
template <int LIMITS>
static __device__ __forceinline__ unsigned end_of_tiles(const bf16_shape &s, const block_place &p) {
    const unsigned last = min(p.first + KEYS, s.sequence) - 1;
    return LIMITS && s.causal ? end_of_queries<LIMITS>(s, last) : s.sequence;
}

static __device__ __forceinline__ void go_on(query_tile *t, const bf16_shape &s,
                                             const block_place &p, unsigned end) {
    t->first += QUERIES;
    if (t->first < end) return;
    t->first = first_query(s, p);
    t->head++;
}

/* Starts copying a tile of queries, as one group of copies (copies_close); after the last tile, the
 * group is empty. */
template <int DIM>
static __device__ __forceinline__ void fetch_queries(shared_at stage, const bf16_shape &s,
                                                     const bf16_sources &in, const block_place &p,
                                                     const query_tile &t) {
    typedef stage_of<DIM> parts;
    const unsigned stride = s.heads * s.width, token = t.first + threadIdx.x;
    if (t.head < (p.head + 1) * s.group) {
        fetch<DIM, QUERIES, BLOCK>(stage, s, head_of(in.q, s, p.batch, s.heads, t.head, s.width),
                                   stride, t.first);
        fetch<DIM, QUERIES, BLOCK>(stage + parts::DOUT, s,
                                   head_of(in.dout, s, p.batch, s.heads, t.head, s.width), stride,
                                   t.first);
        if (threadIdx.x < QUERIES)
            copy_8(stage + parts::TERMS + threadIdx.x * 8,
                   head_of(in.terms, s, p.batch * s.heads + t.head, 1, 0, 1) + token,
                   token < s.sequence);
    }
    copies_close();
}

/* A warp's keys and values, and their gradients. */
template <int DIM> struct held_keys {
    uint32_t key[DIM / 16][4], value[DIM / 16][4];
    float dkey[1][DIM / 8][4], dvalue[1][DIM / 8][4];
};

/* Loads the warp's 16 rows of a tile as left operands. */
template <int DIM>
static __device__ __forceinline__ void hold(uint32_t (&held)[DIM / 16][4], shared_at tile) {
    typedef rows_of_tile<DIM> rows;
    const shared_at left = rows::left(tile, warp_of() * 16);
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) load_matrices(held[k], rows::step(left, k));
}

/* s[16, PART] += key q^T and d[16, PART] += value dout^T. Products for s and for d alternate, so
 * that more successive products are independent. q and dout are addresses that rows_of_tile::right
 * returned. */
template <int DIM>
static __device__ __forceinline__ void
add_scores(float (&s)[1][PART / 8][4], float (&d)[1][PART / 8][4], const held_keys<DIM> &h,
           shared_at q, shared_at dout) {
    typedef rows_of_tile<DIM> rows;
#pragma unroll
    for (int k = 0; k < DIM / 16; k++)
#pragma unroll
        for (int n = 0; n < PART / 8; n += 2) {
            uint32_t right[4];
            load_matrices(right, rows::step(q, k) + n * 8 * rows::BYTES);
            multiply_add(s[0][n], h.key[k], right);
            multiply_add(s[0][n + 1], h.key[k], right + 2);
            load_matrices(right, rows::step(dout, k) + n * 8 * rows::BYTES);
            multiply_add(d[0][n], h.value[k], right);
            multiply_add(d[0][n + 1], h.value[k], right + 2);
        }
}

/* Initializes each column of d with -delta of its query, from the terms. */
static __device__ __forceinline__ void begin_with_delta(float (&d)[1][PART / 8][4],
                                                        shared_at terms) {
#pragma unroll
    for (int n = 0; n < PART / 8; n++) {
        const uint4 two = load_shared(terms + (8 * n + lane_of() % 4 * 2) * 8);
        d[0][n][0] = d[0][n][2] = __uint_as_float(two.y);
        d[0][n][1] = d[0][n][3] = __uint_as_float(two.w);
    }
}

/* Replaces the scores s by weights, and d, which is value . dout - delta, by the gradient of the
 * scores without the factor `root`. */
static __device__ __forceinline__ void grade_queries(const bf16_shape &shape,
                                                     float (&s)[1][PART / 8][4],
                                                     float (&d)[1][PART / 8][4], shared_at terms) {
#pragma unroll
    for (int n = 0; n < PART / 8; n++) {
        const uint4 two = load_shared(terms + (8 * n + lane_of() % 4 * 2) * 8);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float lse = __uint_as_float(i % 2 ? two.z : two.x);
            s[0][n][i] = power_of_2(fmaf(shape.scale, s[0][n][i], -lse));
            d[0][n][i] *= s[0][n][i];
        }
    }
}

/* Sets a score to -infinity if its query does not see its key. Rows start at `key`, columns at
 * `query`. */
template <int LIMITS>
static __device__ __forceinline__ void
hide_keys(const bf16_shape &shape, float (&s)[1][PART / 8][4], unsigned key, unsigned query) {
#pragma unroll
    for (int n = 0; n < PART / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const unsigned row = key + lane_of() / 4 + i / 2 * 8;
            const unsigned col = query + 8 * n + lane_of() % 4 * 2 + i % 2;
            if (row > col || (LIMITS && col - row >= sight_of_row<LIMITS>(shape, col)))
                s[0][n][i] = -INFINITY;
        }
}

/* sees_some returns true if any of PART queries sees any of 16 keys; sees_all returns true if each
 * of these queries sees all of these keys. */
template <int LIMITS>
static __device__ __forceinline__ bool sees_some(const bf16_shape &s, unsigned query,
                                                 unsigned key) {
    return query + PART > key &&
           (!LIMITS || query < key + 15 || query - (key + 15) < sight_of<LIMITS>(s, query));
}
template <int LIMITS>
static __device__ __forceinline__ bool sees_all(const bf16_shape &s, unsigned query, unsigned key) {
    const unsigned last = query + PART - 1;
    return query >= key + 15 && (!LIMITS || last - key < sight_of_row<LIMITS>(s, last));
}

/* Adds the contributions of a stage's queries to the gradients of the warp's keys and values. The
 * queries begin with `query`, the keys with `key`. */
template <int DIM, int LIMITS>
static __device__ __forceinline__ void add_queries(const bf16_shape &shape, held_keys<DIM> &h,
                                                   shared_at stage, unsigned key, unsigned query) {
    typedef rows_of_tile<DIM> rows;
    typedef stage_of<DIM> parts;
#pragma unroll 1
    for (unsigned part = 0; part < QUERIES; part += PART) {
        float s[1][PART / 8][4], d[1][PART / 8][4];
        const unsigned first = query + part;
        const shared_at q = stage + part * rows::BYTES, dout = q + parts::DOUT;
        const shared_at terms = stage + parts::TERMS + part * 8;
        if (first >= shape.sequence || (shape.causal && !sees_some<LIMITS>(shape, first, key)))
            continue;
        clear(s);
        begin_with_delta(d, terms);
        add_scores(s, d, h, rows::right(q), rows::right(dout));
        if (shape.causal && !sees_all<LIMITS>(shape, first, key))
            hide_keys<LIMITS>(shape, s, key, first);
        grade_queries(shape, s, d, terms);
        add_weighted<DIM>(h.dvalue, s, rows::across(dout));
        add_weighted<DIM>(h.dkey, d, rows::across(q));
    }
}

/* Loads the warp's keys and values, through the memory of the stages. */
template <int DIM>
static __device__ __forceinline__ void begin_keys(held_keys<DIM> &h, const bf16_shape &s,
                                                  const bf16_sources &in, const block_place &p,
                                                  shared_at tile) {
    const shared_at values = tile + KEYS * DIM * 2;
    const unsigned stride = s.kv_heads * s.width;
    fetch<DIM, KEYS, BLOCK>(tile, s, head_of(in.key, s, p.batch, s.kv_heads, p.head, s.width),
                            stride, p.first);
    fetch<DIM, KEYS, BLOCK>(values, s, head_of(in.value, s, p.batch, s.kv_heads, p.head, s.width),
                            stride, p.first);
    copies_close();
    copies_wait<0>();
    __syncthreads();
    hold<DIM>(h.key, tile);
    hold<DIM>(h.value, values);
    clear(h.dkey);
    clear(h.dvalue);
    __syncthreads();
}

template <int DIM, int LIMITS, typename T>
static __global__ void __launch_bounds__(BLOCK, 1)
    key_kernel(bf16_shape s, bf16_sources in, float *dkey, T *dvalue) {
    enum { STAGE = stage_of<DIM>::BYTES };
    const block_place p = block_place_of(s, s.kv_heads, KEYS, false);
    const unsigned key = p.first + warp_of() * 16, stride = s.kv_heads * s.dim;
    if (LIMITS == IN_DOCUMENTS) s.places += (size_t)p.batch * s.sequence;
    const unsigned end = end_of_tiles<LIMITS>(s, p);
    query_tile now = {p.head * s.group, first_query(s, p)}, next = now;
    const shared_at tile = shared_address(dynamic_shared());
    const shared_at own = tile + warp_of() * 16 * rows_of_tile<DIM>::BYTES;
    const float root[1][2] = {{s.root, s.root}}, one[1][2] = {{1.0f, 1.0f}};
    held_keys<DIM> h;
    begin_keys(h, s, in, p, tile);
    fetch_queries<DIM>(tile, s, in, p, next);
    go_on(&next, s, p, end);
    fetch_queries<DIM>(tile + STAGE, s, in, p, next);
    for (unsigned turn = 0; now.head < (p.head + 1) * s.group; go_on(&now, s, p, end)) {
        copies_wait<STAGES - 2>();
        __syncthreads(); /* this tile has arrived, and no warp still reads the previous one */
        go_on(&next, s, p, end);
        fetch_queries<DIM>(tile + (turn ? turn - 1 : STAGES - 1) * STAGE, s, in, p, next);
        if (key < s.sequence) add_queries<DIM, LIMITS>(s, h, tile + turn * STAGE, key, now.first);
        turn = turn == STAGES - 1 ? 0 : turn + 1;
    }
    __syncthreads();
    put_tile<DIM>(s, head_of(dkey, s, p.batch, s.kv_heads, p.head, s.dim), stride, key, h.dkey,
                  root, own);
    put_tile<DIM>(s, head_of(dvalue, s, p.batch, s.kv_heads, p.head, s.dim), stride, key, h.dvalue,
                  one, own);
}

template <typename T>
static void to_keys(kernels *k, const bf16_shape &s, const bf16_sources &in, float *dkey,
                    T *dvalue) {
    by_dim(s.dim, [&](auto dim) {
        enum { DIM = decltype(dim)::value };
        enum { BYTES = STAGES * stage_of<DIM>::BYTES };
        static_assert((int)BYTES <= MOST_SHARED, "there is room");
        const size_t tiles = (s.sequence + KEYS - 1) / KEYS;
        by_limits(limits_of(s), [&](auto limits) {
            launch(k, key_kernel<DIM, decltype(limits)::value, T>, tiles * s.batch * s.kv_heads,
                   BLOCK, BYTES, s, in, dkey, dvalue);
        });
        return 0;
    });
}

void tensor_keys_run(kernels *k, const bf16_shape &s, const bf16_sources &in, kernels_type type,
                     float *dkey, void *dvalue) {
    if (type == KERNELS_BF16)
        to_keys(k, s, in, dkey, (uint16_t *)dvalue);
    else
        to_keys(k, s, in, dkey, (float *)dvalue);
}
