/* What the parts of attention share. */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include <math.h>

#include "device.cuh"

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

/* attention_rows.cu: a row at a time, any head_dim. */
void rows_forward(kernels *k, const view &v, float *out, float *lse, const float *q,
                  const float *key, const float *value);
void rows_backward(kernels *k, const view &v, const attention_gradients &g);

/* attention_fp32.cu, attention_bf16.cu: in tiles, head_dim to TILES_DIM. Nonzero where the device
 * lacks the shared memory; then nothing was done. `packed` is scratch, PACKED_BYTES of it. */
enum { TILE = 64, TILES_DIM = 128 };
int fp32_forward(kernels *k, const view &v, float *out, float *lse, const float *q,
                 const float *key, const float *value);
int fp32_backward(kernels *k, const view &v, const attention_gradients &g);
int bf16_forward(kernels *k, const view &v, float *out, float *lse, const float *q,
                 const float *key, const float *value, uint16_t *packed);
int bf16_backward(kernels *k, const view &v, const attention_gradients &g, uint16_t *packed);

/* head_dim as tiles have it. */
static inline size_t tiles_dim(size_t dim) {
    return dim <= 32 ? 32 : dim <= 64 ? 64 : dim <= 96 ? 96 : 128;
}

static inline __host__ __device__ size_t tiles_of(size_t sequence) {
    return (sequence + TILE - 1) / TILE;
}

/* Elements of an array of that many heads in which every head is whole tiles. */
static inline size_t packed_elements(const view &v, size_t heads) {
    return v.batch * heads * tiles_of(v.sequence) * TILE * tiles_dim(v.dim);
}

#endif
