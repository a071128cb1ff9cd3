/* What the parts of attention share. */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include <math.h>

#include <type_traits>

#include "cuda/common/device.cuh"

#define LOG2_E 1.44269504f

/* The shape, and where a head's token lies. */
typedef struct view {
    size_t batch, sequence, heads, kv_heads, dim, group;
    float inv_root;
    bool causal;
} view;

static inline view view_of(const kernels_attention *s) {
    view v;
    v.batch = s->batch;
    v.sequence = s->sequence;
    v.heads = s->heads;
    v.kv_heads = s->kv_heads;
    v.dim = s->head_dim;
    v.group = s->heads / s->kv_heads;
    v.inv_root = 1.0f / sqrtf((float)s->head_dim);
    v.causal = s->causal != 0;
    return v;
}

/* Rows of lse. */
static inline size_t rows_of(const view &v) { return v.batch * v.heads * v.sequence; }

typedef struct attention_gradients {
    float *dq, *dkey, *dvalue;
    const float *dout, *lse, *delta, *q, *key, *value;
} attention_gradients;

/* rows.cu: a row at a time, any head_dim. */
void attention_rows_forward(kernels *k, const view &v, float *out, float *lse, const float *q,
                            const float *key, const float *value);
void attention_rows_backward(kernels *k, const view &v, const attention_gradients &g);

/* tiles.cu: in tiles, head_dim to TILES_DIM. Nonzero where the device lacks the shared
 * memory; then nothing was done. */
enum { TILE = 64, TILES_DIM = 128 };
int attention_tiles_forward(kernels *k, const view &v, float *out, float *lse, const float *q,
                            const float *key, const float *value);
int attention_tiles_backward(kernels *k, const view &v, const attention_gradients &g);

typedef struct attention_backward {
    float *dq, *dkey;
    void *dvalue;
    const void *dout, *out, *q, *key, *value;
    const float *lse;
} attention_backward;

/* tensor.cu: by the tensor cores, head_dim to TILES_DIM. `type` is the shape's; operands of
 * products are rounded to bf16. Scratch of attention_tensor_scratch bytes, on 64. */
size_t attention_tensor_scratch(const view &v, kernels_type type);
void attention_tensor_forward(kernels *k, const view &v, kernels_type type, void *out, float *lse,
                              const void *q, const void *key, const void *value, void *scratch);
void attention_tensor_backward(kernels *k, const view &v, kernels_type type,
                               const attention_backward &b, void *scratch);

/* job(std::integral_constant<int, D>()): tiles of D columns are the narrowest that take `dim`.
 * Nonzero where none do, or where the job's result is. */
template <typename Job> static int by_dim(size_t dim, const Job &job) {
    if (dim <= 32) return job(std::integral_constant<int, 32>());
    if (dim <= 64) return job(std::integral_constant<int, 64>());
    if (dim <= 96) return job(std::integral_constant<int, 96>());
    if (dim <= TILES_DIM) return job(std::integral_constant<int, 128>());
    return 1;
}

static inline __host__ __device__ size_t tiles_of(size_t sequence) {
    return (sequence + TILE - 1) / TILE;
}

#endif
