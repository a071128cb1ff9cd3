/* Attention's tiles in fp32, by plain multiplications. A block of 16 x 16 threads: thread (x, y)
 * has rows 4 y ... 4 y + 3 of a tile, and every sixteenth column. */
#include "cuda/attention/tiles.cuh"

template <int DIM> struct fp32_tiles {
    typedef float element;
    enum { BLOCK = 256, ACROSS = 16, ROWS = 4, COLS = TILE / ACROSS, OUT = DIM / ACROSS };
    enum { LANES = ACROSS, FORWARD_BLOCKS = 1, QUERY_BLOCKS = 1, KEY_BLOCKS = 1 };
    /* Of a row in shared memory: neighbours begin in other banks. */
    enum { STRIDE = DIM + 4, WEIGHTS = TILE + 4 };

    static size_t shared_bytes(size_t tiles) {
        return (tiles * TILE * STRIDE + (size_t)TILE * WEIGHTS) * sizeof(float);
    }
    static __device__ float *tile(int i) { return dynamic_shared() + i * TILE * STRIDE; }
    static __device__ float *spare(int tiles) { return tile(tiles); }
    static __device__ float *behind(int tiles) { return tile(tiles) + TILE * WEIGHTS; }

    static __device__ unsigned x() { return threadIdx.x % ACROSS; }
    static __device__ unsigned row(int i) { return threadIdx.x / ACROSS * ROWS + i; }
    static __device__ unsigned col(int j) { return x() + ACROSS * j; }
    static __device__ unsigned out_col(int j) { return j / 2 * 2 * ACROSS + 2 * x() + j % 2; }

    /* tile[TILE, DIM] = rows from `first` on of a head of from[batch, sequence, heads, dim], and 0
     * beyond its ends. */
    static __device__ void fetch(float *tile, const view &v, const void *from, size_t batch,
                                 size_t head, size_t heads, size_t first) {
        const float *base = (const float *)from + (batch * v.sequence * heads + head) * v.dim;
        for (unsigned i = threadIdx.x; i < TILE * DIM; i += BLOCK) {
            size_t token = first + i / DIM, col = i % DIM;
            bool there = token < v.sequence && col < v.dim;
            tile[i / DIM * STRIDE + col] = there ? base[token * heads * v.dim + col] : 0.0f;
        }
    }

    static __device__ void arrive() { __syncthreads(); }

    /* s = a b^T */
    static __device__ __forceinline__ void scores(float (&s)[ROWS][COLS], const float *a,
                                                  const float *b) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j++) s[i][j] = 0.0f;
#pragma unroll 4
        for (int d = 0; d < DIM; d += 4) {
            float4 left[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++) left[i] = *(const float4 *)(a + row(i) * STRIDE + d);
#pragma unroll
            for (int j = 0; j < COLS; j++) {
                const float4 right = *(const float4 *)(b + col(j) * STRIDE + d);
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

    static __device__ __forceinline__ void weigh_row(float (&o)[ROWS][OUT], const float (&w)[ROWS],
                                                     const float *b) {
#pragma unroll
        for (int j = 0; j < OUT; j += 2) {
            const float2 right = *(const float2 *)(b + out_col(j));
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                o[i][j] += w[i] * right.x;
                o[i][j + 1] += w[i] * right.y;
            }
        }
    }

    /* o += w b. A row's weights stay within the half warp that has the row. */
    static __device__ __forceinline__ void
    weigh(float (&o)[ROWS][OUT], const float (&w)[ROWS][COLS], const float *b, float *weights) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLS; j++) weights[row(i) * WEIGHTS + col(j)] = w[i][j];
        __syncwarp();
#pragma unroll 2
        for (int n = 0; n < TILE; n += 4) {
            float4 four[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                four[i] = *(const float4 *)(weights + row(i) * WEIGHTS + n);
            const float first[ROWS] = {four[0].x, four[1].x, four[2].x, four[3].x};
            const float second[ROWS] = {four[0].y, four[1].y, four[2].y, four[3].y};
            const float third[ROWS] = {four[0].z, four[1].z, four[2].z, four[3].z};
            const float fourth[ROWS] = {four[0].w, four[1].w, four[2].w, four[3].w};
            weigh_row(o, first, b + n * STRIDE);
            weigh_row(o, second, b + (n + 1) * STRIDE);
            weigh_row(o, third, b + (n + 2) * STRIDE);
            weigh_row(o, fourth, b + (n + 3) * STRIDE);
        }
        __syncwarp();
    }
};

int attention_tiles_forward(kernels *k, const view &v, float *out, float *lse, const float *q,
                            const float *key, const float *value) {
    const tile_sources in = {q, key, value, NULL};
    return by_engine<fp32_tiles>(
        k, v.dim, [&](auto tiles) { tiles_forward<decltype(tiles)>(k, v, in, out, lse); });
}

int attention_tiles_backward(kernels *k, const view &v, const attention_gradients &g) {
    const tile_sources in = {g.q, g.key, g.value, g.dout};
    return by_engine<fp32_tiles>(k, v.dim,
                                 [&](auto tiles) { tiles_backward<decltype(tiles)>(k, v, in, g); });
}
