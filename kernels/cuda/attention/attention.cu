/* Attention: chooses the kernels for a shape. If the caller permits rounded operands, and head_dim
 * is at most TILES_DIM, the tensor cores are used. Otherwise tiles are used if a head fits into a
 * tile and the device has enough shared memory. Otherwise one row is computed at a time. */
#include "cuda/attention/tensor.cuh"
#include "cuda/attention/tiles.cuh"

/* The kernels without tiles, for heads of any width. A block of threads computes one row of queries
 * (or of keys), and goes through the keys (or queries) in ascending order, in chunks of THREADS.
 * For each chunk, a thread first computes one weight, and then sums the weighted rows in its own
 * dimensions. The only part of the softmax that is stored is the log of its sum.
 *
 * attention_place is the place of a block's row. Blocks are numbered as [batch, heads, sequence],
 * like lse. */
typedef struct attention_place {
    size_t batch, head, token;
} attention_place;

static __device__ attention_place place_of(size_t block, size_t heads, size_t sequence) {
    attention_place p;
    p.token = block % sequence;
    p.head = block / sequence % heads;
    p.batch = block / sequence / heads;
    return p;
}

static __device__ size_t q_at(const attention_view &v, size_t batch, size_t token, size_t head) {
    return ((batch * v.sequence + token) * v.heads + head) * v.dim;
}

static __device__ size_t kv_at(const attention_view &v, size_t batch, size_t token,
                               size_t kv_head) {
    return ((batch * v.sequence + token) * v.kv_heads + kv_head) * v.dim;
}

/* A position sees the keys from first_visible up to, but not including, visible_from. */
static __device__ size_t visible_from(const attention_view &v, size_t token) {
    return v.causal ? token + 1 : v.sequence;
}
template <int LIMITS>
static __device__ size_t first_visible(const attention_view &v, size_t token) {
    return LIMITS && v.causal ? first_key_of<LIMITS>(v, token) : 0;
}

static __device__ float dot(const float *a, const float *b, size_t n) {
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Online softmax (Milakov and Gimelshein 2018): when the largest score so far grows, the sums so
 * far are scaled down. Shared memory: out [dim], then the weights of a chunk [THREADS]. */
template <int LIMITS>
static __global__ void forward_kernel(attention_view v, float *out, float *lse, const float *q,
                                      const float *key, const float *value) {
    float *shared = dynamic_shared();
    float *acc = shared, *weight = shared + v.dim;
    attention_place p = place_of(blockIdx.x, v.heads, v.sequence);
    size_t at = q_at(v, p.batch, p.token, p.head), kv_head = p.head / v.group;
    size_t visible = visible_from(v, p.token);
    if (LIMITS == IN_DOCUMENTS) v.places += p.batch * v.sequence;
    float most = -INFINITY, sum = 0.0f;
    for (size_t i = threadIdx.x; i < v.dim; i += THREADS) acc[i] = 0.0f;
    for (size_t first = first_visible<LIMITS>(v, p.token); first < visible; first += THREADS) {
        size_t j = first + threadIdx.x, here = min((size_t)THREADS, visible - first);
        float score = j >= visible
                          ? -INFINITY
                          : v.inv_root * dot(q + at, key + kv_at(v, p.batch, j, kv_head), v.dim);
        float above = fmaxf(most, block_max(score)), shrink = expf(most - above);
        weight[threadIdx.x] = expf(score - above);
        sum = sum * shrink + block_sum(weight[threadIdx.x]);
        most = above;
        for (size_t i = threadIdx.x; i < v.dim; i += THREADS) {
            float part = 0.0f;
            for (size_t w = 0; w < here; w++)
                part += weight[w] * value[kv_at(v, p.batch, first + w, kv_head) + i];
            acc[i] = acc[i] * shrink + part;
        }
        __syncthreads();
    }
    for (size_t i = threadIdx.x; i < v.dim; i += THREADS) out[at + i] = acc[i] / sum;
    if (threadIdx.x == 0) lse[blockIdx.x] = (float)((double)most + log((double)sum));
}

static void forward_rows(kernels *k, const attention_view &v, float *out, float *lse,
                         const float *q, const float *key, const float *value) {
    size_t shared = (v.dim + THREADS) * sizeof(float);
    by_limits(limits_of(v), [&](auto limits) {
        LAUNCH(k, forward_kernel<decltype(limits)::value>, rows_of(v), shared, v, out, lse, q, key,
               value);
    });
}

/* A block owns the row of one key. It adds up the key's dkey and dvalue over the heads that share
 * the key, in order, and over the queries that see it. Shared memory: dkey [dim], dvalue [dim],
 * then p [THREADS] and ds [THREADS] of a chunk. */
template <int LIMITS>
static __global__ void key_kernel(attention_view v, float *dkey, float *dvalue, const float *delta,
                                  const float *dout, const float *lse, const float *q,
                                  const float *key, const float *value) {
    float *shared = dynamic_shared();
    float *dk = shared, *dv = dk + v.dim, *p = dv + v.dim, *ds = p + THREADS;
    attention_place own = place_of(blockIdx.x, v.kv_heads, v.sequence);
    size_t at = kv_at(v, own.batch, own.token, own.head);
    if (LIMITS == IN_DOCUMENTS) v.places += own.batch * v.sequence;
    size_t end = LIMITS && v.causal ? end_of_queries<LIMITS>(v, own.token) : v.sequence;
    for (size_t i = threadIdx.x; i < v.dim; i += THREADS) dk[i] = dv[i] = 0.0f;
    for (size_t head = own.head * v.group; head < (own.head + 1) * v.group; head++) {
        size_t row = (own.batch * v.heads + head) * v.sequence;
        for (size_t first = v.causal ? own.token : 0; first < end; first += THREADS) {
            size_t t = first + threadIdx.x, here = min((size_t)THREADS, end - first);
            if (t < end) {
                size_t from = q_at(v, own.batch, t, head);
                float score = v.inv_root * dot(q + from, key + at, v.dim);
                p[threadIdx.x] = expf(score - lse[row + t]);
                ds[threadIdx.x] =
                    p[threadIdx.x] * (dot(dout + from, value + at, v.dim) - delta[row + t]);
            }
            __syncthreads();
            for (size_t i = threadIdx.x; i < v.dim; i += THREADS)
                for (size_t w = 0; w < here; w++) {
                    size_t from = q_at(v, own.batch, first + w, head) + i;
                    dv[i] += p[w] * dout[from];
                    dk[i] += ds[w] * q[from];
                }
            __syncthreads();
        }
    }
    for (size_t i = threadIdx.x; i < v.dim; i += THREADS) {
        dkey[at + i] = v.inv_root * dk[i];
        dvalue[at + i] = dv[i];
    }
}

/* A block owns the row of one query. Shared memory: dq [dim], then ds of a chunk [THREADS]. */
template <int LIMITS>
static __global__ void query_kernel(attention_view v, float *dq, const float *delta,
                                    const float *dout, const float *lse, const float *q,
                                    const float *key, const float *value) {
    float *shared = dynamic_shared();
    float *acc = shared, *ds = shared + v.dim;
    attention_place p = place_of(blockIdx.x, v.heads, v.sequence);
    size_t at = q_at(v, p.batch, p.token, p.head), kv_head = p.head / v.group;
    size_t visible = visible_from(v, p.token);
    if (LIMITS == IN_DOCUMENTS) v.places += p.batch * v.sequence;
    for (size_t i = threadIdx.x; i < v.dim; i += THREADS) acc[i] = 0.0f;
    for (size_t first = first_visible<LIMITS>(v, p.token); first < visible; first += THREADS) {
        size_t j = first + threadIdx.x, here = min((size_t)THREADS, visible - first);
        if (j < visible) {
            size_t from = kv_at(v, p.batch, j, kv_head);
            float score = v.inv_root * dot(q + at, key + from, v.dim);
            ds[threadIdx.x] = expf(score - lse[blockIdx.x]) *
                              (dot(dout + at, value + from, v.dim) - delta[blockIdx.x]);
        }
        __syncthreads();
        for (size_t i = threadIdx.x; i < v.dim; i += THREADS)
            for (size_t w = 0; w < here; w++)
                acc[i] += ds[w] * key[kv_at(v, p.batch, first + w, kv_head) + i];
        __syncthreads();
    }
    for (size_t i = threadIdx.x; i < v.dim; i += THREADS) dq[at + i] = v.inv_root * acc[i];
}

/* query_kernel comes last, because dq may be the memory of q. Each block of query_kernel reads only
 * its own row of q. */
static void backward_rows(kernels *k, const attention_view &v, const attention_gradients &g) {
    size_t row = v.dim * sizeof(float), chunk = THREADS * sizeof(float);
    by_limits(limits_of(v), [&](auto limits) {
        enum { LIMITS = decltype(limits)::value };
        LAUNCH(k, key_kernel<LIMITS>, v.batch * v.kv_heads * v.sequence, 2 * (row + chunk), v,
               g.dkey, g.dvalue, g.delta, g.dout, g.lse, g.q, g.key, g.value);
        LAUNCH(k, query_kernel<LIMITS>, rows_of(v), row + chunk, v, g.dq, g.delta, g.dout, g.lse,
               g.q, g.key, g.value);
    });
}

/* delta[batch,heads,sequence] = dout . out; one warp per row. */
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

/* Returns the number of floats in delta, rounded up to a multiple of 16, so that the next array is
 * aligned to 64 bytes. */
static size_t delta_floats(const attention_view &v) { return (rows_of(v) + 15) / 16 * 16; }

static size_t q_elements(const attention_view &v) { return v.batch * v.sequence * v.heads * v.dim; }
static size_t kv_elements(const attention_view &v) {
    return v.batch * v.sequence * v.kv_heads * v.dim;
}

/* Without the tensor cores, scratch has room for delta and, if arrays are bf16, for copies of all
 * of them as fp32. */
static size_t cuda_attention_scratch(const kernels_attention *shape) {
    const attention_view v = view_of(shape);
    const size_t wide = shape->type == KERNELS_BF16 ? 3 * q_elements(v) + 3 * kv_elements(v) : 0;
    if (takes_bf16(shape)) return attention_tensor_scratch(v, shape->type) / sizeof(float);
    return delta_floats(v) + wide;
}

static void attend_forward(kernels *k, const attention_view &v, float *out, float *lse,
                           const float *q, const float *key, const float *value) {
    if (!attention_tiles_forward(k, v, out, lse, q, key, value)) return;
    forward_rows(k, v, out, lse, q, key, value);
}

static void attend_backward(kernels *k, const attention_view &v, const attention_gradients &g,
                            const float *out, float *delta) {
    const size_t warps = THREADS / 32;
    LAUNCH(k, delta_kernel, (rows_of(v) + warps - 1) / warps, 0, v, delta, g.dout, out, rows_of(v));
    if (!attention_tiles_backward(k, v, g)) return;
    backward_rows(k, v, g);
}

/* Returns an array as fp32: the array itself, or a copy in scratch at *room, which then points past
 * the copy. */
static const float *widened(kernels *k, kernels_type type, float **room, const void *from,
                            size_t n) {
    float *to = *room;
    if (type != KERNELS_BF16) return (const float *)from;
    k->widen(k, to, (const uint16_t *)from, n);
    *room += n;
    return to;
}

/* Returns the memory in which to compute an array as fp32: the array itself, or scratch at *room.
 * narrow_back then rounds from there into the array. */
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
