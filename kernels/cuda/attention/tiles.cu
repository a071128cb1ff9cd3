/* Attention in fp32, in tiles of TILE queries by TILE keys (Dao et al. 2022; Dao 2023). A block of
 * threads owns a tile of queries, for the result and dq, or a tile of keys, for dkey and dvalue. A
 * block of queries goes through the tiles of keys in ascending order. A block of keys goes through
 * the heads that share the keys, one after the other, and for each head through the tiles of
 * queries in ascending order. So the order of every sum depends only on head_dim and the position
 * in the sequence.
 *
 * A block has 16 x 16 threads. Thread (x, y) holds elements of rows 4 y ... 4 y + 3 of a tile. In
 * s[ROWS][COLS] it holds every sixteenth column of a tile of products. In o[ROWS][OUT] it holds
 * pairs of neighbouring columns of a tile whose rows have head_dim elements. Tiles are DIM columns
 * wide, the smallest of 32, 64, 96 and 128 that is not below head_dim. Exponentials are to base
 * 2. */
#include "cuda/attention/tiles.cuh"

enum { BLOCK = 256, ACROSS = 16, ROWS = 4, COLS = TILE / ACROSS };
/* Floats from one row of weights to the next in shared memory. With this stride, neighbouring rows
 * begin in different banks. */
enum { WEIGHTS = TILE + 4 };

/* Floats from one row of a tile to the next; neighbouring rows begin in different banks. */
static inline __host__ __device__ constexpr int stride_of(int dim) { return dim + 4; }

/* Returns the bytes of shared memory for `tiles` tiles and the weights, which follow them. */
static size_t shared_bytes(size_t tiles, int dim) {
    return (tiles * TILE * stride_of(dim) + (size_t)TILE * WEIGHTS) * sizeof(float);
}

/* Returns the position of tile `i`, which is also the end of the first `i` tiles. */
template <int DIM> static __device__ float *tile_at(int i) {
    return dynamic_shared() + i * TILE * stride_of(DIM);
}

static __device__ unsigned lane_of() { return threadIdx.x % ACROSS; }
static __device__ unsigned row_of(int i) { return threadIdx.x / ACROSS * ROWS + i; }
static __device__ unsigned col_of(int j) { return lane_of() + ACROSS * j; }
static __device__ unsigned out_col_of(int j) { return j / 2 * 2 * ACROSS + 2 * lane_of() + j % 2; }

/* The arrays from which tiles are read. */
typedef struct tile_sources {
    const float *q, *key, *value, *dout;
} tile_sources;

/* tile[TILE, DIM] = rows of a head of from[batch, sequence, heads, dim], starting at token `first`;
 * 0 beyond the last token, and beyond dim. */
template <int DIM>
static __device__ void fetch_tile(float *tile, const attention_view &v, const float *from,
                                  size_t batch, size_t head, size_t heads, size_t first) {
    const float *base = from + (batch * v.sequence * heads + head) * v.dim;
    for (unsigned i = threadIdx.x; i < TILE * DIM; i += BLOCK) {
        size_t token = first + i / DIM, col = i % DIM;
        bool there = token < v.sequence && col < v.dim;
        tile[i / DIM * stride_of(DIM) + col] = there ? base[token * heads * v.dim + col] : 0.0f;
    }
}

/* s = a b^T */
template <int DIM>
static __device__ __forceinline__ void form_scores(float (&s)[ROWS][COLS], const float *a,
                                                   const float *b) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLS; j++) s[i][j] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < DIM; d += 4) {
        float4 left[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            left[i] = *(const float4 *)(a + row_of(i) * stride_of(DIM) + d);
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            const float4 right = *(const float4 *)(b + col_of(j) * stride_of(DIM) + d);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                s[i][j] += left[i].x * right.x;
                s[i][j] += left[i].y * right.y;
                s[i][j] += left[i].z * right.z;
                s[i][j] += left[i].w * right.w;
            }
        }
    }
}

template <int OUT>
static __device__ __forceinline__ void weigh_row(float (&o)[ROWS][OUT], const float (&w)[ROWS],
                                                 const float *b) {
#pragma unroll
    for (int j = 0; j < OUT; j += 2) {
        const float2 right = *(const float2 *)(b + out_col_of(j));
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            o[i][j] += w[i] * right.x;
            o[i][j + 1] += w[i] * right.y;
        }
    }
}

/* o += w b. The weights of a row are exchanged through shared memory, but only within the half warp
 * that holds the row. */
template <int OUT>
static __device__ __forceinline__ void add_weighted_rows(float (&o)[ROWS][OUT],
                                                         const float (&w)[ROWS][COLS],
                                                         const float *b, float *weights) {
    const int stride = stride_of(OUT * ACROSS);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLS; j++) weights[row_of(i) * WEIGHTS + col_of(j)] = w[i][j];
    __syncwarp();
#pragma unroll 2
    for (int n = 0; n < TILE; n += 4) {
        float4 four[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            four[i] = *(const float4 *)(weights + row_of(i) * WEIGHTS + n);
        const float first[ROWS] = {four[0].x, four[1].x, four[2].x, four[3].x};
        const float second[ROWS] = {four[0].y, four[1].y, four[2].y, four[3].y};
        const float third[ROWS] = {four[0].z, four[1].z, four[2].z, four[3].z};
        const float fourth[ROWS] = {four[0].w, four[1].w, four[2].w, four[3].w};
        weigh_row(o, first, b + n * stride);
        weigh_row(o, second, b + (n + 1) * stride);
        weigh_row(o, third, b + (n + 2) * stride);
        weigh_row(o, fourth, b + (n + 3) * stride);
    }
    __syncwarp();
}

/* The tile that a block owns: its first token, and its head, of queries or of keys. */
typedef struct tile_place {
    size_t batch, head, first;
} tile_place;

/* Tiles with more work come first, so that the last blocks to run are short. Set `backwards` if
 * later tiles have more work. */
static __device__ tile_place tile_place_of(const attention_view &v, size_t heads, bool backwards) {
    tile_place p;
    size_t tile = blockIdx.x / (v.batch * heads), rest = blockIdx.x % (v.batch * heads);
    p.first = (backwards ? tiles_of(v.sequence) - 1 - tile : tile) * TILE;
    p.batch = rest / heads;
    p.head = rest % heads;
    return p;
}

/* Returns true if a query sees a key. 32 bits are large enough here, and faster. */
template <int LIMITS>
static __device__ __forceinline__ bool sees(const attention_view &v, unsigned query, unsigned key) {
    return key < (unsigned)v.sequence && query < (unsigned)v.sequence &&
           (!v.causal || (key <= query && (!LIMITS || query - key < sight_of<LIMITS>(v, query))));
}

/* Returns the first key of the first tile that a tile of queries sees. */
template <int LIMITS>
static __device__ __forceinline__ size_t first_tile(const attention_view &v, size_t first_query) {
    return LIMITS && v.causal ? first_key_of<LIMITS>(v, first_query) / TILE * TILE : 0;
}

/* Returns the end of the queries that see a key of the tile. */
template <int LIMITS>
static __device__ __forceinline__ size_t end_of_tile(const attention_view &v, size_t first_key) {
    if (!LIMITS || !v.causal) return v.sequence;
    return end_of_queries<LIMITS>(v, min(first_key + TILE, v.sequence) - 1);
}

/* Returns true if every query of a tile of queries sees every key of a tile of keys. */
template <int LIMITS>
static __device__ __forceinline__ bool all_see(const attention_view &v, size_t first_query,
                                               size_t first_key) {
    return max(first_query, first_key) + TILE <= v.sequence &&
           (!v.causal || (first_key + TILE <= first_query + 1 &&
                          (!LIMITS || first_query + TILE - first_key <=
                                          sight_of<LIMITS>(v, first_query + TILE - 1))));
}

/* lanes_sum and lanes_max: the sum, or the largest, of a row's values, on all threads that hold the
 * row. */
static __device__ float lanes_sum(float x) {
#pragma unroll
    for (int mask = ACROSS / 2; mask; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

static __device__ float lanes_max(float x) {
#pragma unroll
    for (int mask = ACROSS / 2; mask; mask /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
    return x;
}

template <int OUT> static __device__ void clear_tile(float (&o)[ROWS][OUT]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < OUT; j++) o[i][j] = 0.0f;
}

/* Writes the tile's rows, row i times factor[i], to to[batch, sequence, heads, dim]. */
template <int OUT>
static __device__ void put_rows(const attention_view &v, float *to, const tile_place &p,
                                size_t heads, const float (&o)[ROWS][OUT],
                                const float (&factor)[ROWS]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        size_t token = p.first + row_of(i);
        float *row = to + ((p.batch * v.sequence + token) * heads + p.head) * v.dim;
        if (token >= v.sequence) continue;
#pragma unroll
        for (int j = 0; j < OUT; j++)
            if (out_col_of(j) < v.dim) row[out_col_of(j)] = factor[i] * o[i][j];
    }
}

/* Online softmax (Milakov and Gimelshein 2018): replaces s by the row's weights relative to `most`,
 * the largest score so far. When `most` grows, sum and o are scaled down. `most` is -infinity until
 * the first key that the row sees; until then the weights are 0. A row past the end of the sequence
 * sees no key, becomes NaN, and is not stored. */
template <int LIMITS, int OUT>
static __device__ void soften_rows(const attention_view &v, float (&s)[ROWS][COLS],
                                   float (&most)[ROWS], float (&sum)[ROWS], float (&o)[ROWS][OUT],
                                   size_t first, size_t first_key) {
    const float scale = v.inv_root * LOG2_E;
    const bool whole = all_see<LIMITS>(v, first, first_key);
    const unsigned row = (unsigned)first, col = (unsigned)first_key;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float above = most[i], part = 0.0f;
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            bool seen = whole || sees<LIMITS>(v, row + row_of(i), col + col_of(j));
            s[i][j] = seen ? scale * s[i][j] : -INFINITY;
            above = fmaxf(above, s[i][j]);
        }
        above = lanes_max(above);
        const float over = LIMITS && above == -INFINITY ? 0.0f : above,
                    shrink = exp2f(most[i] - over);
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            s[i][j] = exp2f(s[i][j] - over);
            part += s[i][j];
        }
        most[i] = above;
        sum[i] = sum[i] * shrink + lanes_sum(part);
#pragma unroll
        for (int j = 0; j < OUT; j++) o[i][j] *= shrink;
    }
}

template <int DIM, int LIMITS>
static __global__ void __launch_bounds__(BLOCK, 1)
    forward_tile_kernel(attention_view v, tile_sources in, float *out, float *lse) {
    float *q = tile_at<DIM>(0), *key = tile_at<DIM>(1), *value = tile_at<DIM>(2);
    const tile_place p = tile_place_of(v, v.heads, v.causal);
    const size_t kv_head = p.head / v.group;
    const size_t keys = v.causal ? min(p.first + TILE, v.sequence) : v.sequence;
    if (LIMITS == IN_DOCUMENTS) v.places += p.batch * v.sequence;
    float most[ROWS], sum[ROWS], factor[ROWS], o[ROWS][DIM / ACROSS];
    for (int i = 0; i < ROWS; i++) {
        most[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    clear_tile(o);
    fetch_tile<DIM>(q, v, in.q, p.batch, p.head, v.heads, p.first);
    for (size_t first = first_tile<LIMITS>(v, p.first); first < keys; first += TILE) {
        float s[ROWS][COLS];
        fetch_tile<DIM>(key, v, in.key, p.batch, kv_head, v.kv_heads, first);
        fetch_tile<DIM>(value, v, in.value, p.batch, kv_head, v.kv_heads, first);
        __syncthreads();
        form_scores<DIM>(s, q, key);
        soften_rows<LIMITS>(v, s, most, sum, o, p.first, first);
        add_weighted_rows(o, s, value, tile_at<DIM>(3));
        __syncthreads();
    }
    for (int i = 0; i < ROWS; i++) {
        size_t token = p.first + row_of(i);
        factor[i] = 1.0f / sum[i];
        if (token < v.sequence && threadIdx.x % ACROSS == 0)
            lse[(p.batch * v.heads + p.head) * v.sequence + token] =
                (float)((double)most[i] / 1.4426950408889634 + log((double)sum[i]));
    }
    put_rows(v, out, p, v.heads, o, factor);
}

/* On entry s is a product of a query and a key, and d is the product of dout and a value. Replaces
 * s by the softmax, and d by the gradient of the score without the factor inv_root. lse is to base
 * 2. */
static __device__ __forceinline__ void grade_score(const attention_view &v, float *s, float *d,
                                                   bool seen, float lse, float delta) {
    *s = seen ? exp2f(v.inv_root * LOG2_E * *s - lse) : 0.0f;
    *d = *s * (*d - delta);
}

template <int DIM, int LIMITS>
static __global__ void __launch_bounds__(BLOCK, 1)
    query_tile_kernel(attention_view v, tile_sources in, float *dq, const float *lse,
                      const float *delta) {
    float *q = tile_at<DIM>(0), *dout = tile_at<DIM>(1), *key = tile_at<DIM>(2),
          *value = tile_at<DIM>(3);
    const tile_place p = tile_place_of(v, v.heads, v.causal);
    const size_t kv_head = p.head / v.group;
    const size_t keys = v.causal ? min(p.first + TILE, v.sequence) : v.sequence;
    if (LIMITS == IN_DOCUMENTS) v.places += p.batch * v.sequence;
    float row_lse[ROWS], row_delta[ROWS], factor[ROWS], o[ROWS][DIM / ACROSS];
    for (int i = 0; i < ROWS; i++) {
        size_t token = p.first + row_of(i);
        size_t at = (p.batch * v.heads + p.head) * v.sequence + token;
        row_lse[i] = token < v.sequence ? lse[at] * LOG2_E : 0.0f;
        row_delta[i] = token < v.sequence ? delta[at] : 0.0f;
        factor[i] = v.inv_root;
    }
    clear_tile(o);
    fetch_tile<DIM>(q, v, in.q, p.batch, p.head, v.heads, p.first);
    fetch_tile<DIM>(dout, v, in.dout, p.batch, p.head, v.heads, p.first);
    for (size_t first = first_tile<LIMITS>(v, p.first); first < keys; first += TILE) {
        float s[ROWS][COLS], d[ROWS][COLS];
        fetch_tile<DIM>(key, v, in.key, p.batch, kv_head, v.kv_heads, first);
        fetch_tile<DIM>(value, v, in.value, p.batch, kv_head, v.kv_heads, first);
        __syncthreads();
        form_scores<DIM>(s, q, key);
        form_scores<DIM>(d, dout, value);
        const bool whole = all_see<LIMITS>(v, p.first, first);
        const unsigned row = (unsigned)p.first, col = (unsigned)first;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j++) {
                bool seen = whole || sees<LIMITS>(v, row + row_of(i), col + col_of(j));
                grade_score(v, &s[i][j], &d[i][j], seen, row_lse[i], row_delta[i]);
            }
        add_weighted_rows(o, d, key, tile_at<DIM>(4));
        __syncthreads();
    }
    put_rows(v, dq, p, v.heads, o, factor);
}

/* In this kernel rows are keys, and columns are queries. In shared memory, lse [TILE] and delta
 * [TILE] of the queries follow the tiles and weights. */
template <int DIM, int LIMITS>
static __global__ void __launch_bounds__(BLOCK, 1)
    key_tile_kernel(attention_view v, tile_sources in, float *dkey, float *dvalue, const float *lse,
                    const float *delta) {
    float *key = tile_at<DIM>(0), *value = tile_at<DIM>(1), *q = tile_at<DIM>(2),
          *dout = tile_at<DIM>(3);
    float *tile_lse = tile_at<DIM>(4) + TILE * WEIGHTS, *tile_delta = tile_lse + TILE;
    const tile_place p = tile_place_of(v, v.kv_heads, false);
    if (LIMITS == IN_DOCUMENTS) v.places += p.batch * v.sequence;
    const size_t end = end_of_tile<LIMITS>(v, p.first);
    float root[ROWS], one[ROWS], dk[ROWS][DIM / ACROSS], dv[ROWS][DIM / ACROSS];
    for (int i = 0; i < ROWS; i++) {
        root[i] = v.inv_root;
        one[i] = 1.0f;
    }
    clear_tile(dk);
    clear_tile(dv);
    fetch_tile<DIM>(key, v, in.key, p.batch, p.head, v.kv_heads, p.first);
    fetch_tile<DIM>(value, v, in.value, p.batch, p.head, v.kv_heads, p.first);
    for (size_t head = p.head * v.group; head < (p.head + 1) * v.group; head++)
        for (size_t first = v.causal ? p.first : 0; first < end; first += TILE) {
            float s[ROWS][COLS], d[ROWS][COLS];
            fetch_tile<DIM>(q, v, in.q, p.batch, head, v.heads, first);
            fetch_tile<DIM>(dout, v, in.dout, p.batch, head, v.heads, first);
            if (threadIdx.x < TILE) {
                size_t token = first + threadIdx.x;
                size_t at = (p.batch * v.heads + head) * v.sequence + token;
                tile_lse[threadIdx.x] = token < v.sequence ? lse[at] * LOG2_E : 0.0f;
                tile_delta[threadIdx.x] = token < v.sequence ? delta[at] : 0.0f;
            }
            __syncthreads();
            form_scores<DIM>(s, key, q);
            form_scores<DIM>(d, value, dout);
            const bool whole = all_see<LIMITS>(v, first, p.first);
            const unsigned row = (unsigned)p.first, col = (unsigned)first;
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLS; j++) {
                    bool seen = whole || sees<LIMITS>(v, col + col_of(j), row + row_of(i));
                    grade_score(v, &s[i][j], &d[i][j], seen, tile_lse[col_of(j)],
                                tile_delta[col_of(j)]);
                }
            add_weighted_rows(dv, s, dout, tile_at<DIM>(4));
            add_weighted_rows(dk, d, q, tile_at<DIM>(4));
            __syncthreads();
        }
    put_rows(v, dkey, p, v.kv_heads, dk, root);
    put_rows(v, dvalue, p, v.kv_heads, dv, one);
}

/* Returns the bytes of shared memory of the kernel that needs the most. */
static size_t most_shared_bytes(int dim) { return shared_bytes(4, dim) + 2 * TILE * sizeof(float); }

/* Like by_dim, but returns nonzero if a block of this device cannot have enough shared memory. */
template <typename Job> static int by_tiles(kernels *k, size_t dim, const Job &job) {
    return by_dim(dim, [&](auto tiles_dim) {
        if (most_shared_bytes(decltype(tiles_dim)::value) > cuda_of(k)->most_shared) return 1;
        job(tiles_dim);
        return 0;
    });
}

int attention_tiles_forward(kernels *k, const attention_view &v, float *out, float *lse,
                            const float *q, const float *key, const float *value) {
    const tile_sources in = {q, key, value, NULL};
    const size_t blocks = tiles_of(v.sequence) * v.batch * v.heads;
    return by_tiles(k, v.dim, [&](auto dim) {
        enum { DIM = decltype(dim)::value };
        by_limits(limits_of(v), [&](auto limits) {
            launch(k, forward_tile_kernel<DIM, decltype(limits)::value>, blocks, BLOCK,
                   shared_bytes(3, DIM), v, in, out, lse);
        });
    });
}

/* The kernel for dq comes last, because dq may be q; each of its blocks reads only the rows of q
 * that it writes. */
int attention_tiles_backward(kernels *k, const attention_view &v, const attention_gradients &g) {
    const tile_sources in = {g.q, g.key, g.value, g.dout};
    const size_t tiles = tiles_of(v.sequence) * v.batch;
    return by_tiles(k, v.dim, [&](auto dim) {
        enum { DIM = decltype(dim)::value };
        by_limits(limits_of(v), [&](auto limits) {
            enum { LIMITS = decltype(limits)::value };
            launch(k, key_tile_kernel<DIM, LIMITS>, tiles * v.kv_heads, BLOCK,
                   most_shared_bytes(DIM), v, in, g.dkey, g.dvalue, g.lse, g.delta);
            launch(k, query_tile_kernel<DIM, LIMITS>, tiles * v.heads, BLOCK, shared_bytes(4, DIM),
                   v, in, g.dq, g.lse, g.delta);
        });
    });
}
