/* Definitions that the kernels of attention on tensor cores share. Operands are bf16; sums are
 * fp32.
 *
 * A warp multiplies its own 16 M rows of a tile by all 8 N rows of another tile. If `thread` is a
 * thread's number in its warp, r = thread / 4 and c = thread % 4, then the thread holds these sums
 * in x[M][N][4]:
 *   x[m][n][0], x[m][n][1]   row 16 m + r,     columns 8 n + 2 c and 8 n + 2 c + 1
 *   x[m][n][2], x[m][n][3]   row 16 m + r + 8, the same columns
 *
 * For one m, the elements of two neighbouring values of n (16 rows, 16 columns) already have the
 * layout of a left operand of the next product. */
#pragma once

#include "cuda/attention/mma.cuh"
#include "cuda/attention/view.cuh"

/* The shape, with numbers of 32 bits: they are large enough for the elements of a sequence, and
 * kernels compute faster with them. */
typedef struct bf16_shape {
    unsigned batch, sequence, heads, kv_heads, group;
    unsigned width;        /* elements of a head in arrays that are read: a multiple of 8 */
    unsigned dim;          /* elements of a head in arrays that are written */
    unsigned section;      /* see block_place_of */
    unsigned window;       /* for kernels with LIMITS: the most keys that a causal position sees;
                              UINT32_MAX: no limit */
    const int32_t *places; /* as in attention_view */
    bool causal;
    float root, scale; /* root: head_dim^-1/2; scale: root * log2(e) */
} bf16_shape;

/* The arrays that are read, [batch, sequence, heads or kv_heads, width], aligned to 16 bytes. */
typedef struct bf16_sources {
    const uint16_t *q, *key, *value, *dout;
    const float2 *terms; /* [batch, heads, sequence] (lse in base 2, -delta); backward pass only */
} bf16_sources;

/* Each function is in the .cu file of the same name. out and dvalue are of `type`. */
void tensor_forward_run(kernels *k, const bf16_shape &s, const bf16_sources &in, kernels_type type,
                        void *out, float *lse);
void tensor_queries_run(kernels *k, const bf16_shape &s, const bf16_sources &in, float *dq);
void tensor_keys_run(kernels *k, const bf16_shape &s, const bf16_sources &in, kernels_type type,
                     float *dkey, void *dvalue);

/* The bytes of shared memory that a block can request on every device that has the instructions of
 * mma.cuh. */
enum { MOST_SHARED = 99 << 10 };

/* The part that a block computes: a head of queries or of keys, and the first of the block's
 * rows. */
typedef struct block_place {
    unsigned batch, head, first;
} block_place;

/* Blocks run roughly in the order of their numbers. s.section is the number of sequences in a
 * section. Each block reads two arrays from end to end (keys and values, or queries and dout);
 * the arrays of a whole section fit into the L2 cache together, unless a section is a single
 * sequence. In a section, blocks with more work come first, so that the last ones to run are short.
 * Set `backwards` if later rows have more work. Heads that share keys follow each other. */
static __device__ block_place block_place_of(const bf16_shape &s, unsigned heads, unsigned rows,
                                             bool backwards) {
    const unsigned tiles = (s.sequence + rows - 1) / rows, whole = s.section * heads * tiles;
    const unsigned sequence = blockIdx.x / whole * s.section, rest = blockIdx.x % whole;
    const unsigned together = min(s.section, s.batch - sequence) * heads, tile = rest / together;
    block_place p;
    p.batch = sequence + rest % together / heads;
    p.head = rest % together % heads;
    p.first = (backwards ? tiles - 1 - tile : tile) * rows;
    return p;
}

/* Returns the address of token 0 of a head of x[batch, sequence, heads, width]. An x[batch, heads,
 * sequence] is passed as [batch * heads, sequence, 1, 1]. */
template <typename T>
static __device__ __forceinline__ T *head_of(T *x, const bf16_shape &s, unsigned batch,
                                             unsigned heads, unsigned head, unsigned width) {
    return x + ((size_t)batch * s.sequence * heads + head) * width;
}

static __device__ __forceinline__ unsigned lane_of() { return threadIdx.x % 32; }
static __device__ __forceinline__ unsigned warp_of() { return threadIdx.x / 32; }

/* Rows of DIM elements in shared memory, in chunks of 16 bytes. The position of a chunk depends on
 * the row's number, too (it is swizzled), so that the same chunk of eight consecutive rows covers
 * all banks. A tile is aligned to 256 bytes and has a multiple of 16 rows. */
template <int DIM> struct rows_of_tile {
    enum { CHUNKS = DIM / 8, BYTES = DIM * 2 };
    /* A period is the largest power of two that divides a row's bytes; PERIOD is its number of
     * steps of 32 bytes. Chunks change places only within a period. */
    enum { PERIOD = (DIM & -DIM) / 16 };

    static __device__ __forceinline__ unsigned at(unsigned row, unsigned chunk) {
        const unsigned mix = DIM % 64 == 0 ? row % 8 : row / 2 % 4;
        return (row * CHUNKS + (chunk ^ mix)) * 16;
    }
    /* first: the address of chunk 0 or 1 of a row. Returns the address of the chunk that is 2 *
     * step chunks further. */
    static __device__ __forceinline__ shared_at step(shared_at first, unsigned step) {
        return (first ^ step % PERIOD * 32) + step / PERIOD * (PERIOD * 32);
    }
    /* Returns the address that this thread passes to load_matrices, for a left operand that starts
     * at the tile's row `first`. */
    static __device__ __forceinline__ shared_at left(shared_at tile, unsigned first) {
        return tile + at(first + lane_of() % 16, lane_of() / 16);
    }
    /* Returns the address for load_matrices, for two right operands of 8 columns each. Their
     * columns are the tile's rows. */
    static __device__ __forceinline__ shared_at right(shared_at tile) {
        return tile + at(lane_of() / 16 * 8 + lane_of() % 8, lane_of() / 8 % 2);
    }
    /* Returns the address for load_transposed, for two right operands of 8 columns each. Their rows
     * are the tile's rows. */
    static __device__ __forceinline__ shared_at across(shared_at tile) {
        return tile + at(lane_of() % 16, lane_of() / 16);
    }
};

/* Starts copying ROWS rows of a head, starting at token `first`. Writes zeros beyond the head's
 * last token and last element. Token 0 is at `head`, and each next token is `stride` elements
 * further. A thread copies the same chunks of every STEPth row, so its addresses differ by
 * constants. */
template <int DIM, int ROWS, int BLOCK>
static __device__ __forceinline__ void
fetch(shared_at tile, const bf16_shape &s, const uint16_t *head, unsigned stride, unsigned first) {
    typedef rows_of_tile<DIM> rows;
    enum { ACROSS = rows::CHUNKS & -rows::CHUNKS, STEP = BLOCK / ACROSS };
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0,
                  "each thread copies equally many rows, which are all swizzled alike");
    const unsigned row = threadIdx.x / ACROSS, chunk = threadIdx.x % ACROSS;
    const shared_at to = tile + rows::at(row, chunk);
    const uint16_t *from = head + ((first + row) * stride + chunk * 8);
#pragma unroll
    for (unsigned j = 0; j < rows::CHUNKS; j += ACROSS) {
        const unsigned tokens = (chunk + j) * 8 < s.width ? s.sequence : 0;
#pragma unroll
        for (unsigned i = 0; i < ROWS; i += STEP)
            copy_16(to + i * rows::BYTES + j * 16, from + (i * stride + j * 8),
                    first + row + i < tokens);
    }
}

template <int M, int N> static __device__ __forceinline__ void clear(float (&x)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) x[m][n][i] = 0.0f;
}

/* x[16 M, 8 N] += a b^T, where a is the warp's rows of one tile, and b is the first 8 N rows of
 * another tile. Pass the addresses that rows_of_tile::left and rows_of_tile::right return. */
template <int DIM, int M, int N>
static __device__ __forceinline__ void add_products(float (&x)[M][N][4], shared_at a, shared_at b) {
    typedef rows_of_tile<DIM> rows;
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        uint32_t left[M][4], right[4];
#pragma unroll
        for (int m = 0; m < M; m++) load_matrices(left[m], rows::step(a, k) + m * 16 * rows::BYTES);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_matrices(right, rows::step(b, k) + n * 8 * rows::BYTES);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add(x[m][n], left[m], right);
                multiply_add(x[m][n + 1], left[m], right + 2);
            }
        }
    }
}

/* x[16 M, DIM] += w b, where w[16 M, 8 N] is rounded to bf16, and b is the first 8 N rows of a
 * tile. Pass the address that rows_of_tile::across returns. */
template <int DIM, int M, int N>
static __device__ __forceinline__ void add_weighted(float (&x)[M][DIM / 8][4],
                                                    const float (&w)[M][N][4], shared_at b) {
    typedef rows_of_tile<DIM> rows;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t left[M][4], right[4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                left[m][i] = pair_of(w[m][n + i / 2][i % 2 * 2], w[m][n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            load_transposed(right, rows::step(b, d) + n * 8 * rows::BYTES);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add(x[m][2 * d], left[m], right);
                multiply_add(x[m][2 * d + 1], left[m], right + 2);
            }
        }
    }
}

/* Like sight_of, but also accepts rows past the end of the sequence, whose result does not
 * matter. */
template <int LIMITS>
static __device__ __forceinline__ unsigned sight_of_row(const bf16_shape &s, unsigned row) {
    return sight_of<LIMITS>(s, LIMITS == IN_DOCUMENTS ? min(row, s.sequence - 1) : row);
}

/* Sets this thread's scores s[16 M, 8 N] to -infinity if they are not visible. Queries start at
 * `query`, keys at `key`. */
template <int LIMITS, int M, int N>
static __device__ __forceinline__ void hide(const bf16_shape &shape, float (&s)[M][N][4],
                                            unsigned query, unsigned key) {
    const unsigned r = lane_of() / 4, c = lane_of() % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned row = query + 16 * m + r + i / 2 * 8,
                               col = key + 8 * n + 2 * c + i % 2;
                if (col >= shape.sequence ||
                    (shape.causal &&
                     (col > row || (LIMITS && row - col >= sight_of_row<LIMITS>(shape, row)))))
                    s[m][n][i] = -INFINITY;
            }
}

/* Returns true if each of 32 queries sees all of the keys, so `hide` would change nothing. Only the
 * last query, which may be past the end of the sequence, is tested against its window, because it
 * sees the fewest of these keys. */
template <int LIMITS>
static __device__ __forceinline__ bool all_seen(const bf16_shape &s, unsigned query, unsigned key,
                                                unsigned keys) {
    return key + keys <= s.sequence &&
           (!s.causal || (key + keys <= query + 1 &&
                          (!LIMITS || query + 32 - key <= sight_of_row<LIMITS>(s, query + 31))));
}

/* Returns true if none of 32 queries sees any of the keys: all keys come after the queries, or
 * before their windows. */
template <int LIMITS>
static __device__ __forceinline__ bool none_seen(const bf16_shape &s, unsigned query, unsigned key,
                                                 unsigned keys) {
    return s.causal &&
           (key >= query + 32 || (LIMITS && query >= key + keys - 1 &&
                                  query - (key + keys - 1) >= sight_of<LIMITS>(s, query)));
}

/* Returns the first key of the first tile that queries starting at `query` see. keys: the size of a
 * tile. */
template <int LIMITS>
static __device__ __forceinline__ unsigned first_keys(const bf16_shape &s, unsigned query,
                                                      unsigned keys) {
    return LIMITS && s.causal ? first_key_of<LIMITS>(s, query) / keys * keys : 0;
}

/* row_sum and row_max: the sum, or the largest, of a row's numbers, over the four threads that hold
 * the row. */
static __device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

static __device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* Stores two neighbouring elements of a row, aligned to the size of both. */
static __device__ __forceinline__ void store_pair(float *to, float low, float high) {
    *(float2 *)to = float2{low, high};
}
static __device__ __forceinline__ void store_pair(uint16_t *to, float low, float high) {
    *(uint32_t *)to = pair_of(low, high);
}

/* Writes factor[m][i] * x into rows of a head, starting at token `first`. Token 0 is at `head`. */
template <int DIM, int M, typename T>
static __device__ void put_apart(const bf16_shape &s, T *head, unsigned stride, unsigned first,
                                 const float (&x)[M][DIM / 8][4], const float (&factor)[M][2]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned token = first + 16 * m + lane_of() / 4 + 8 * i;
            T *row = head + (size_t)token * stride;
            if (token >= s.sequence) continue;
#pragma unroll
            for (int n = 0; n < DIM / 8; n++) {
                const unsigned col = 8 * n + lane_of() % 4 * 2;
                const float low = factor[m][i] * x[m][n][2 * i];
                const float high = factor[m][i] * x[m][n][2 * i + 1];
                if (s.dim % 2 == 0) {
                    if (col < s.dim) store_pair(row + col, low, high);
                    continue;
                }
                if (col < s.dim) store(row + col, low);
                if (col + 1 < s.dim) store(row + col + 1, high);
            }
        }
}

/* Like put_apart, for bf16, but writes 16 bytes at a time, through the warp's own 16 M rows of
 * shared memory. */
template <int DIM, int M>
static __device__ void put_chunks(const bf16_shape &s, uint16_t *head, unsigned stride,
                                  unsigned first, const float (&x)[M][DIM / 8][4],
                                  const float (&factor)[M][2], shared_at tile) {
    typedef rows_of_tile<DIM> rows;
    const unsigned r = lane_of() / 4, c = lane_of() % 4;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                store_shared(
                    tile + rows::at(16 * m + r + 8 * i, n) + 4 * c,
                    pair_of(factor[m][i] * x[m][n][2 * i], factor[m][i] * x[m][n][2 * i + 1]));
    __syncwarp();
#pragma unroll
    for (unsigned i = lane_of(); i < 16 * M * rows::CHUNKS; i += 32) {
        const unsigned row = i / rows::CHUNKS, chunk = i % rows::CHUNKS, token = first + row;
        const uint4 part = load_shared(tile + rows::at(row, chunk));
        if (token < s.sequence && chunk * 8 < s.dim)
            *(uint4 *)(head + (size_t)token * stride + chunk * 8) = part;
    }
    __syncwarp();
}

template <int DIM, int M>
static __device__ __forceinline__ void put_tile(const bf16_shape &s, float *head, unsigned stride,
                                                unsigned first, const float (&x)[M][DIM / 8][4],
                                                const float (&factor)[M][2], shared_at) {
    put_apart<DIM>(s, head, stride, first, x, factor);
}

template <int DIM, int M>
static __device__ __forceinline__ void
put_tile(const bf16_shape &s, uint16_t *head, unsigned stride, unsigned first,
         const float (&x)[M][DIM / 8][4], const float (&factor)[M][2], shared_at tile) {
    if (s.dim % 8 == 0)
        put_chunks<DIM>(s, head, stride, first, x, factor, tile);
    else
        put_apart<DIM>(s, head, stride, first, x, factor);
}
