/* Attention's tiles by the tensor cores: operands in bf16, sums in fp32. A block of four warps:
 * warp w has rows 16 w ... 16 w + 15 of a tile. The arrays are rounded first, into heads of whole
 * tiles whose rows are DIM elements, 0 beyond their ends; so tiles are copied as they are. */
#include "attention_tiles.cuh"
#include "mma.cuh"

/* Two numbers as neighbours, the first one lower. */
static __device__ __forceinline__ uint32_t pair_of(float low, float high) {
    return (uint32_t)bf16_of(high) << 16 | bf16_of(low);
}

template <int DIM> struct bf16_tiles {
    typedef uint16_t element;
    enum { BLOCK = 128, ROWS = 2, COLS = TILE / 4, OUT = DIM / 4, LANES = 4 };
    enum { FORWARD_BLOCKS = 3, QUERY_BLOCKS = 3, KEY_BLOCKS = 2 };
    enum { HEAD = DIM, STRIDE = DIM + 8 }; /* eight neighbouring rows cover all banks once */

    static size_t shared_bytes(size_t tiles) { return tiles * TILE * STRIDE * sizeof(element); }
    static __device__ element *tile(int i) {
        return (element *)dynamic_shared() + i * TILE * STRIDE;
    }
    static __device__ float *spare(int) { return NULL; }
    static __device__ float *behind(int tiles) { return (float *)tile(tiles); }

    static __device__ unsigned lane() { return threadIdx.x % 32; }
    static __device__ unsigned warp_row() { return threadIdx.x / 32 * 16; }
    static __device__ unsigned row(int i) { return warp_row() + lane() / 4 + 8 * i; }
    static __device__ unsigned col(int j) { return j / 2 * 8 + lane() % 4 * 2 + j % 2; }
    static __device__ unsigned out_col(int j) { return col(j); }

    static __device__ void fetch(element *tile, const view &v, const void *from, size_t batch,
                                 size_t head, size_t heads, size_t first) {
        const size_t at = ((batch * heads + head) * tiles_of(v.sequence) * TILE + first) * DIM;
        const element *base = (const element *)from + at;
        for (unsigned i = threadIdx.x * 8; i < TILE * DIM; i += BLOCK * 8)
            copy_16(tile + i / DIM * STRIDE + i % DIM, base + i);
    }

    static __device__ void arrive() {
        copies_wait();
        __syncthreads();
    }

    /* s = a b^T. Columns i of multiply_add's d are columns 8 n + i of the tile. */
    static __device__ __forceinline__ void scores(float (&s)[ROWS][COLS], const element *a,
                                                  const element *b) {
        const element *left = a + (warp_row() + lane() % 16) * STRIDE + lane() / 16 * 8;
        const element *right = b + (lane() / 16 * 8 + lane() % 8) * STRIDE + lane() / 8 % 2 * 8;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j++) s[i][j] = 0.0f;
#pragma unroll
        for (int d = 0; d < DIM; d += 16) {
            uint32_t part[4];
            load_matrices(part, left + d);
#pragma unroll
            for (int n = 0; n < TILE; n += 16) {
                uint32_t two[4]; /* columns n ... n + 7, then n + 8 ... n + 15 */
                load_matrices(two, right + n * STRIDE + d);
                multiply_add(&s[0][n / 4], &s[1][n / 4], part, two);
                multiply_add(&s[0][n / 4 + 2], &s[1][n / 4 + 2], part, two + 2);
            }
        }
    }

    /* o += w b: what a thread has of sums is what it needs as the next product's left operand. */
    static __device__ __forceinline__ void
    weigh(float (&o)[ROWS][OUT], const float (&w)[ROWS][COLS], const element *b, float *) {
        const element *right = b + lane() % 16 * STRIDE + lane() / 16 * 8;
#pragma unroll
        for (int n = 0; n < TILE; n += 16) {
            const int j = n / 4;
            const uint32_t part[4] = {pair_of(w[0][j], w[0][j + 1]), pair_of(w[1][j], w[1][j + 1]),
                                      pair_of(w[0][j + 2], w[0][j + 3]),
                                      pair_of(w[1][j + 2], w[1][j + 3])};
#pragma unroll
            for (int d = 0; d < DIM; d += 16) {
                uint32_t two[4];
                load_transposed(two, right + n * STRIDE + d);
                multiply_add(&o[0][d / 4], &o[1][d / 4], part, two);
                multiply_add(&o[0][d / 4 + 2], &o[1][d / 4 + 2], part, two + 2);
            }
        }
    }
};

/* A block rounds a token's heads, two elements a thread. */
template <typename E>
static __global__ void pack_kernel(view v, uint32_t *to, const float *from, size_t heads) {
    const size_t padded = tiles_of(v.sequence) * TILE;
    const size_t batch = blockIdx.x / padded, token = blockIdx.x % padded;
    for (unsigned i = threadIdx.x; i < heads * (E::HEAD / 2); i += THREADS) {
        const unsigned head = i / (E::HEAD / 2), col = i % (E::HEAD / 2) * 2;
        const float *row = from + ((batch * v.sequence + token) * heads + head) * v.dim;
        const bool there = token < v.sequence;
        const float low = there && col < v.dim ? row[col] : 0.0f;
        const float high = there && col + 1 < v.dim ? row[col + 1] : 0.0f;
        to[((batch * heads + head) * padded + token) * (E::HEAD / 2) + col / 2] =
            pair_of(low, high);
    }
}

/* Returns what lies behind. */
template <typename E>
static uint16_t *pack(kernels *k, const view &v, uint16_t *to, const float *from, size_t heads) {
    LAUNCH(k, pack_kernel<E>, v.batch * tiles_of(v.sequence) * TILE, 0, v, (uint32_t *)to, from,
           heads);
    return to + packed_elements(v, heads);
}

/* dout may be NULL. */
template <typename E>
static tile_sources pack_all(kernels *k, const view &v, uint16_t *to, const float *q,
                             const float *key, const float *value, const float *dout) {
    tile_sources in = {};
    in.q = to;
    in.key = to = pack<E>(k, v, to, q, v.heads);
    in.value = to = pack<E>(k, v, to, key, v.kv_heads);
    in.dout = to = pack<E>(k, v, to, value, v.kv_heads);
    if (dout) pack<E>(k, v, to, dout, v.heads);
    return in;
}

int bf16_forward(kernels *k, const view &v, float *out, float *lse, const float *q,
                 const float *key, const float *value, uint16_t *packed) {
    return by_dim<bf16_tiles>(k, v.dim, [&](auto tiles) {
        typedef decltype(tiles) E;
        tiles_forward<E>(k, v, pack_all<E>(k, v, packed, q, key, value, NULL), out, lse);
    });
}

int bf16_backward(kernels *k, const view &v, const attention_gradients &g, uint16_t *packed) {
    return by_dim<bf16_tiles>(k, v.dim, [&](auto tiles) {
        typedef decltype(tiles) E;
        tiles_backward<E>(k, v, pack_all<E>(k, v, packed, g.q, g.key, g.value, g.dout), g);
    });
}
