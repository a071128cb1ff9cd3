/* Attention: chooses the kernels for a shape. Tiles, wherever a head fits one and the device has
 * the shared memory; on the tensor cores, where the caller allows rounded operands. Otherwise a row
 * at a time. */
#include "cuda/attention/rows.cuh"
#include "cuda/attention/tensor.cuh"
#include "cuda/attention/tiles.cuh"

/* delta[batch,heads,sequence] = dout . out; a warp a row. */
static __global__ void delta_kernel(attention_view v, float *delta, const float *dout,
                                    const float *out, size_t rows) {
    const size_t row = ((size_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    const size_t token = row % v.sequence, head = row / v.sequence % v.heads;
    const size_t batch = row / v.sequence / v.heads;
    const size_t at = ((batch * v.sequence + token) * v.heads + head) * v.dim;
    float sum = 0.0f;
    if (row < rows)
        for (size_t i = threadIdx.x % 32; i < v.dim; i += 32) sum += dout[at + i] * out[at + i];
    for (int mask = 16; mask; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (row < rows && threadIdx.x % 32 == 0) delta[row] = sum;
}

static bool takes_bf16(const kernels_attention *s) {
    return s->operands == KERNELS_BF16 && s->head_dim <= TILES_DIM;
}

/* Rounded up to a multiple of 16, so that what follows is aligned to 64 bytes. */
static size_t delta_floats(const attention_view &v) { return (rows_of(v) + 15) / 16 * 16; }

static size_t q_elements(const attention_view &v) { return v.batch * v.sequence * v.heads * v.dim; }
static size_t kv_elements(const attention_view &v) {
    return v.batch * v.sequence * v.kv_heads * v.dim;
}

/* Without the tensor cores: delta, and where arrays are bf16, copies of all of them as fp32. */
static size_t cuda_attention_scratch(const kernels_attention *shape) {
    const attention_view v = view_of(shape);
    const size_t wide = shape->type == KERNELS_BF16 ? 3 * q_elements(v) + 3 * kv_elements(v) : 0;
    if (takes_bf16(shape)) return attention_tensor_scratch(v, shape->type) / sizeof(float);
    return delta_floats(v) + wide;
}

static void attend_forward(kernels *k, const attention_view &v, float *out, float *lse,
                           const float *q, const float *key, const float *value) {
    if (!attention_tiles_forward(k, v, out, lse, q, key, value)) return;
    attention_rows_forward(k, v, out, lse, q, key, value);
}

static void attend_backward(kernels *k, const attention_view &v, const attention_gradients &g,
                            const float *out, float *delta) {
    const size_t warps = THREADS / 32;
    LAUNCH(k, delta_kernel, (rows_of(v) + warps - 1) / warps, 0, v, delta, g.dout, out, rows_of(v));
    if (!attention_tiles_backward(k, v, g)) return;
    attention_rows_backward(k, v, g);
}

/* The array as fp32: itself, or a copy in scratch, behind which *room then points. */
static const float *widened(kernels *k, kernels_type type, float **room, const void *from,
                            size_t n) {
    float *to = *room;
    if (type != KERNELS_BF16) return (const float *)from;
    k->widen(k, to, (const uint16_t *)from, n);
    *room += n;
    return to;
}

/* Where an array is to be written as fp32, likewise; narrow_back then rounds it into the array. */
static float *room_for(kernels_type type, float **room, void *array, size_t n) {
    float *to = *room;
    if (type != KERNELS_BF16) return (float *)array;
    *room += n;
    return to;
}

static void narrow_back(kernels *k, kernels_type type, void *array, const float *wide, size_t n) {
    if (type == KERNELS_BF16) k->narrow(k, (uint16_t *)array, wide, n);
}

static void cuda_attention_forward(kernels *k, const kernels_attention *shape, void *out,
                                   float *lse, const void *q, const void *key, const void *value,
                                   float *scratch) {
    const attention_view v = view_of(shape);
    const kernels_type type = shape->type;
    float *room = scratch + delta_floats(v);
    if (takes_bf16(shape)) {
        attention_tensor_forward(k, v, type, out, lse, q, key, value, scratch);
        return;
    }
    const float *wide_q = widened(k, type, &room, q, q_elements(v));
    const float *wide_key = widened(k, type, &room, key, kv_elements(v));
    const float *wide_value = widened(k, type, &room, value, kv_elements(v));
    float *wide_out = room_for(type, &room, out, q_elements(v));
    attend_forward(k, v, wide_out, lse, wide_q, wide_key, wide_value);
    narrow_back(k, type, out, wide_out, q_elements(v));
}

static void cuda_attention_backward(kernels *k, const kernels_attention *shape, float *dq,
                                    float *dkey, void *dvalue, const void *dout, const void *out,
                                    const float *lse, const void *q, const void *key,
                                    const void *value, float *scratch) {
    const attention_view v = view_of(shape);
    const kernels_type type = shape->type;
    float *room = scratch + delta_floats(v);
    if (takes_bf16(shape)) {
        const attention_backward b = {dq, dkey, dvalue, dout, out, q, key, value, lse};
        attention_tensor_backward(k, v, type, b, scratch);
        return;
    }
    attention_gradients g = {};
    g.dq = dq;
    g.dkey = dkey;
    g.lse = lse;
    g.delta = scratch;
    g.q = widened(k, type, &room, q, q_elements(v));
    g.key = widened(k, type, &room, key, kv_elements(v));
    g.value = widened(k, type, &room, value, kv_elements(v));
    g.dout = widened(k, type, &room, dout, q_elements(v));
    g.dvalue = room_for(type, &room, dvalue, kv_elements(v));
    attend_backward(k, v, g, widened(k, type, &room, out, q_elements(v)), scratch);
    narrow_back(k, type, dvalue, g.dvalue, kv_elements(v));
}

void cuda_attention_fill(kernels *k) {
    k->attention_scratch = cuda_attention_scratch;
    k->attention_forward = cuda_attention_forward;
    k->attention_backward = cuda_attention_backward;
}
