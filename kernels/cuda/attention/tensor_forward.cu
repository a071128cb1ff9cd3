/* Attention on tensor cores: the forward pass (Dao et al. 2022; Dao 2023). A block of four
 * warps computes 128 queries of a head, 32 per warp, and goes through the keys in ascending order.
 * While it computes with one tile of keys and values, the next tile is copied. */
#include "cuda/attention/tensor_tiles.cuh"

enum { WARPS = 4, BLOCK = 32 * WARPS, QUERIES = 32 * WARPS, KEYS = 64 };

/* The softmax so far of the warp's rows 16 m + r + 8 i, indexed by [m][i]; r is the thread's number
 * in the warp divided by 4. The weight of a score is 2^(shape.scale (score - most)). */
typedef struct soft_rows {
    float most[2][2]; /* the row's largest score when this was last updated */
    float sum[2][2];  /* the sum of the weights that this thread holds */
} soft_rows;

/* A row's weights may grow to 2^GROWTH before `most` is updated. fp32 has enough range for such
 * weights, and o has to be scaled only rarely. */
#define GROWTH 8.0f

/* If scores have grown too much, updates `most`, and scales o and sum down. `most` is -infinity
 * until the first key that the row sees. */
template <int DIM, int LIMITS>
static __device__ __forceinline__ void take_most(const bf16_shape &shape, soft_rows *rows,
                                                 const float (&s)[2][KEYS / 8][4],
                                                 float (&o)[2][DIM / 8][4]) {
    float most[2][2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            most[m][i] = fmaxf(s[m][0][2 * i], s[m][0][2 * i + 1]);
#pragma unroll
            for (int n = 1; n < KEYS / 8; n++)
                most[m][i] = fmaxf(most[m][i], fmaxf(s[m][n][2 * i], s[m][n][2 * i + 1]));
            most[m][i] = row_max(most[m][i]);
            if (shape.scale * (most[m][i] - rows->most[m][i]) > GROWTH)
                grown = true;
            else
                most[m][i] = rows->most[m][i];
        }
    if (!__any_sync(0xffffffffu, grown)) return;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float shrink = LIMITS && rows->most[m][i] == most[m][i]
                                     ? 1.0f
                                     : power_of_2(shape.scale * (rows->most[m][i] - most[m][i]));
            rows->most[m][i] = most[m][i];
            rows->sum[m][i] *= shrink;
#pragma unroll
            for (int n = 0; n < DIM / 8; n++) {
                o[m][n][2 * i] *= shrink;
                o[m][n][2 * i + 1] *= shrink;
            }
        }
}

/* Replaces scores by weights, and adds the weights to the sums. */
template <int LIMITS>
static __device__ __forceinline__ void soften(const bf16_shape &shape, soft_rows *rows,
                                              float (&s)[2][KEYS / 8][4]) {
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float most = rows->most[m][i / 2];
            const float minus = LIMITS && most == -INFINITY ? 0.0f : -shape.scale * most;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                s[m][n][i] = power_of_2(fmaf(shape.scale, s[m][n][i], minus));
                rows->sum[m][i / 2] += s[m][n][i];
            }
        }
}

/* Sets factor to 1 / sum, and stores lse, for the warp's rows, which start at `first`. */
static __device__ void end_rows(const bf16_shape &shape, const soft_rows &rows, unsigned first,
                                float *head_lse, float (&factor)[2][2]) {
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned token = first + 16 * m + lane_of() / 4 + 8 * i;
            const float sum = row_sum(rows.sum[m][i]);
            factor[m][i] = 1.0f / sum;
            if (token < shape.sequence && lane_of() % 4 == 0)
                head_lse[token] = shape.root * rows.most[m][i] + logf(sum);
        }
}

/* Returns the number of blocks per multiprocessor. With documents, rows begin at different keys,
 * which requires more registers. */
static constexpr int blocks_resident(int dim, int limits) {
    return dim > 64 || (dim == 64 && limits == IN_DOCUMENTS) ? 2 : 3;
}

/* Shared memory: q [QUERIES], then two buffers of key [KEYS] and value [KEYS]. */
template <int DIM, int LIMITS, typename T>
static __global__ void __launch_bounds__(BLOCK, blocks_resident(DIM, LIMITS))
    forward_kernel(bf16_shape s, bf16_sources in, T *out, float *lse) {
    typedef rows_of_tile<DIM> rows;
    enum { STAGE = 2 * KEYS * rows::BYTES };
    const block_place p = block_place_of(s, s.heads, QUERIES, s.causal);
    const unsigned first = p.first + warp_of() * 32, kv_head = p.head / s.group;
    const unsigned q_stride = s.heads * s.width, kv_stride = s.kv_heads * s.width;
    const unsigned keys = s.causal ? min(p.first + QUERIES, s.sequence) : s.sequence;
    if (LIMITS == IN_DOCUMENTS) s.places += (size_t)p.batch * s.sequence;
    const unsigned begin = first_keys<LIMITS>(s, p.first, KEYS);
    const uint16_t *key = head_of(in.key, s, p.batch, s.kv_heads, kv_head, s.width);
    const uint16_t *value = head_of(in.value, s, p.batch, s.kv_heads, kv_head, s.width);
    const shared_at tile = shared_address(dynamic_shared());
    const shared_at stages = tile + QUERIES * rows::BYTES, q = rows::left(tile, warp_of() * 32);
    soft_rows soft = {{{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}}, {}};
    float o[2][DIM / 8][4], factor[2][2];
    clear(o);
    fetch<DIM, QUERIES, BLOCK>(tile, s, head_of(in.q, s, p.batch, s.heads, p.head, s.width),
                               q_stride, p.first);
    fetch<DIM, KEYS, BLOCK>(stages, s, key, kv_stride, begin);
    fetch<DIM, KEYS, BLOCK>(stages + STAGE / 2, s, value, kv_stride, begin);
    copies_close();
    for (unsigned at = begin, turn = 0; at < keys; at += KEYS, turn ^= 1) {
        const shared_at stage = stages + turn * STAGE, next = stages + (turn ^ 1) * STAGE;
        float x[2][KEYS / 8][4];
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
        add_products<DIM>(x, q, rows::right(stage));
        if (!all_seen<LIMITS>(s, first, at, KEYS)) hide<LIMITS>(s, x, first, at);
        take_most<DIM, LIMITS>(s, &soft, x, o);
        soften<LIMITS>(s, &soft, x);
        add_weighted<DIM>(o, x, rows::across(stage + STAGE / 2));
    }
    end_rows(s, soft, first, head_of(lse, s, p.batch * s.heads + p.head, 1, 0, 1), factor);
    put_tile<DIM>(s, head_of(out, s, p.batch, s.heads, p.head, s.dim), s.heads * s.dim, first, o,
                  factor, tile + warp_of() * 32 * rows::BYTES);
}

template <typename T>
static void launch_forward(kernels *k, const bf16_shape &s, const bf16_sources &in, T *out,
                           float *lse) {
    by_dim(s.dim, [&](auto dim) {
        enum { DIM = decltype(dim)::value };
        enum { BYTES = (QUERIES + 4 * KEYS) * rows_of_tile<DIM>::BYTES };
        static_assert((int)BYTES <= MOST_SHARED, "there is room");
        const size_t tiles = (s.sequence + QUERIES - 1) / QUERIES;
        by_limits(limits_of(s), [&](auto limits) {
            launch(k, forward_kernel<DIM, decltype(limits)::value, T>, tiles * s.batch * s.heads,
                   BLOCK, BYTES, s, in, out, lse);
        });
        return 0;
    });
}

void tensor_forward_run(kernels *k, const bf16_shape &s, const bf16_sources &in, kernels_type type,
                        void *out, float *lse) {
    if (type == KERNELS_BF16)
        launch_forward(k, s, in, (uint16_t *)out, lse);
    else
        launch_forward(k, s, in, (float *)out, lse);
}
