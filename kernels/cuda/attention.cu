/* Attention: which kernels a shape takes. Tiles wherever a head fits one and the device has the
 * shared memory, by the tensor cores where the caller lets operands be rounded; else rows. */
#include "attention.cuh"

/* delta[batch,heads,sequence] = dout . out; a warp a row. dout as the products have it. */
static __global__ void delta_kernel(view v, float *delta, const float *dout, const float *out,
                                    size_t rows, bool rounded) {
    const size_t row = ((size_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    const size_t token = row % v.sequence, head = row / v.sequence % v.heads;
    const size_t batch = row / v.sequence / v.heads;
    const size_t at = ((batch * v.sequence + token) * v.heads + head) * v.dim;
    float sum = 0.0f;
    if (row < rows)
        for (size_t i = threadIdx.x % 32; i < v.dim; i += 32) {
            uint16_t narrow = bf16_of(dout[at + i]);
            sum += (rounded ? load(&narrow) : dout[at + i]) * out[at + i];
        }
    for (int mask = 16; mask; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (row < rows && threadIdx.x % 32 == 0) delta[row] = sum;
}

static bool takes_bf16(const kernels_attention *s) {
    return s->operands == KERNELS_BF16 && s->head_dim <= TILES_DIM;
}

/* Up to a multiple of 16, so that what follows stands on 64 bytes. */
static size_t delta_floats(const view &v) { return (rows_of(v) + 15) / 16 * 16; }

static size_t q_elements(const view &v) { return v.batch * v.sequence * v.heads * v.dim; }
static size_t kv_elements(const view &v) { return v.batch * v.sequence * v.kv_heads * v.dim; }

/* delta; q, key, value and dout as bf16; and where the arrays are bf16, all of them as fp32. */
size_t cuda_attention_scratch(const kernels_attention *shape) {
    const view v = view_of(shape);
    const size_t packed = 2 * (packed_elements(v, v.heads) + packed_elements(v, v.kv_heads));
    const size_t wide = shape->type == KERNELS_BF16 ? 3 * q_elements(v) + 3 * kv_elements(v) : 0;
    return delta_floats(v) + (takes_bf16(shape) ? packed / 2 : 0) + wide;
}

/* from[n] as fp32, behind what else is in scratch; NULL: only its room. */
static float *widened(kernels *k, float **room, const void *from, size_t n) {
    float *to = *room;
    if (from) cuda_widen(k, to, (const uint16_t *)from, n);
    *room += n;
    return to;
}

static float *room_of(const kernels_attention *shape, const view &v, float *scratch) {
    const size_t packed = 2 * (packed_elements(v, v.heads) + packed_elements(v, v.kv_heads));
    return scratch + delta_floats(v) + (takes_bf16(shape) ? packed / 2 : 0);
}

static void forward(kernels *k, const kernels_attention *shape, float *out, float *lse,
                    const float *q, const float *key, const float *value, float *scratch) {
    const view v = view_of(shape);
    uint16_t *packed = (uint16_t *)(scratch + delta_floats(v));
    if (takes_bf16(shape) && !bf16_forward(k, v, out, lse, q, key, value, packed)) return;
    if (!fp32_forward(k, v, out, lse, q, key, value)) return;
    rows_forward(k, v, out, lse, q, key, value);
}

void cuda_attention_forward(kernels *k, const kernels_attention *shape, void *out, float *lse,
                            const void *q, const void *key, const void *value, float *scratch) {
    const view v = view_of(shape);
    float *room = room_of(shape, v, scratch);
    if (shape->type != KERNELS_BF16) {
        forward(k, shape, (float *)out, lse, (const float *)q, (const float *)key,
                (const float *)value, scratch);
        return;
    }
    const float *wide_q = widened(k, &room, q, q_elements(v));
    const float *wide_key = widened(k, &room, key, kv_elements(v));
    const float *wide_value = widened(k, &room, value, kv_elements(v));
    float *wide_out = room;
    forward(k, shape, wide_out, lse, wide_q, wide_key, wide_value, scratch);
    cuda_narrow(k, (uint16_t *)out, wide_out, q_elements(v));
}

static void backward(kernels *k, const kernels_attention *shape, float *dq, float *dkey,
                     float *dvalue, const float *dout, const float *out, const float *lse,
                     const float *q, const float *key, const float *value, float *scratch) {
    const view v = view_of(shape);
    uint16_t *packed = (uint16_t *)(scratch + delta_floats(v));
    const attention_gradients g = {dq, dkey, dvalue, dout, lse, scratch, q, key, value};
    const size_t warps = THREADS / 32;
    LAUNCH(k, delta_kernel, (rows_of(v) + warps - 1) / warps, 0, v, scratch, dout, out, rows_of(v),
           takes_bf16(shape));
    if (takes_bf16(shape) && !bf16_backward(k, v, g, packed)) return;
    if (!fp32_backward(k, v, g)) return;
    rows_backward(k, v, g);
}

void cuda_attention_backward(kernels *k, const kernels_attention *shape, float *dq, float *dkey,
                             void *dvalue, const void *dout, const void *out, const float *lse,
                             const void *q, const void *key, const void *value, float *scratch) {
    const view v = view_of(shape);
    float *room = room_of(shape, v, scratch);
    if (shape->type != KERNELS_BF16) {
        backward(k, shape, dq, dkey, (float *)dvalue, (const float *)dout, (const float *)out, lse,
                 (const float *)q, (const float *)key, (const float *)value, scratch);
        return;
    }
    const float *wide_q = widened(k, &room, q, q_elements(v));
    const float *wide_key = widened(k, &room, key, kv_elements(v));
    const float *wide_value = widened(k, &room, value, kv_elements(v));
    const float *wide_dout = widened(k, &room, dout, q_elements(v));
    const float *wide_out = widened(k, &room, out, q_elements(v));
    float *wide_dvalue = widened(k, &room, NULL, kv_elements(v));
    backward(k, shape, dq, dkey, wide_dvalue, wide_dout, wide_out, lse, wide_q, wide_key,
             wide_value, scratch);
    cuda_narrow(k, (uint16_t *)dvalue, wide_dvalue, kv_elements(v));
}
