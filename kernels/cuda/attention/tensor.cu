/* Attention on tensor cores: prepares the arrays and launches the kernels. Arrays of bf16 are
 * read in place if a head consists of whole chunks of 16 bytes. Other arrays are first copied, as
 * bf16, with zeros up to a whole chunk. */
#include "cuda/attention/tensor.cuh"

#include "cuda/attention/tensor_tiles.cuh"

/* The number of bytes of the L2 cache that the sequences of a section may use (block_place_of). */
enum { CACHE = 32 << 20 };

/* Loads eight elements. Only the first `there` are read; the others become 0. */
template <typename T>
static __device__ __forceinline__ void load_8(float (&x)[8], const T *from, unsigned there) {
#pragma unroll
    for (unsigned i = 0; i < 8; i++) x[i] = i < there ? load(from + i) : 0.0f;
}

static __device__ __forceinline__ void load_whole(float (&x)[8], const uint16_t *from) {
    const uint4 four = *(const uint4 *)from;
    const uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16);
}

static __device__ __forceinline__ void load_whole(float (&x)[8], const float *from) {
    const float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
    const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = all[i];
}

/* Loads the eight elements of a row that start at 8 * chunk, with 0 beyond the row's `dim`
 * elements. Rows that consist of whole chunks are aligned to 16 bytes. */
template <typename T>
static __device__ __forceinline__ void load_chunk(float (&x)[8], const T *row, unsigned chunk,
                                                  unsigned dim) {
    if (dim % 8 == 0)
        load_whole(x, row + chunk * 8);
    else
        load_8(x, row + chunk * 8, dim - chunk * 8);
}

/* to[rows, width] = from[rows, dim] as bf16. One thread copies one chunk. */
template <typename T>
static __global__ void pack_kernel(bf16_shape s, uint4 *to, const T *from, size_t rows) {
    const unsigned chunks = s.width / 8;
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    float x[8];
    if (i >= rows * chunks) return;
    load_chunk(x, from + i / chunks * s.dim, (unsigned)(i % chunks), s.dim);
    to[i] =
        uint4{pair_of(x[0], x[1]), pair_of(x[2], x[3]), pair_of(x[4], x[5]), pair_of(x[6], x[7])};
}

/* terms[batch, heads, sequence] = (lse in base 2, -dout . out). 16 threads compute one row. */
template <typename T>
static __global__ void terms_kernel(bf16_shape s, float2 *terms, const uint16_t *dout, const T *out,
                                    const float *lse) {
    const size_t row = ((size_t)blockIdx.x * THREADS + threadIdx.x) / 16;
    const size_t token = row / s.heads % s.sequence, batch = row / s.heads / s.sequence;
    const size_t at = (batch * s.heads + row % s.heads) * s.sequence + token;
    const unsigned chunk = threadIdx.x % 16;
    float sum = 0.0f, x[8], y[8];
    if (batch < s.batch && chunk * 8 < s.width) {
        load_whole(x, dout + row * s.width + chunk * 8);
        load_chunk(y, out + row * s.dim, chunk, s.dim);
#pragma unroll
        for (int i = 0; i < 8; i++) sum += x[i] * y[i];
    }
#pragma unroll
    for (int mask = 8; mask; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (batch < s.batch && chunk == 0) terms[at] = float2{lse[at] * LOG2_E, -sum};
}

static size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

static bf16_shape tensor_shape_of(const attention_view &v) {
    bf16_shape s = {};
    s.batch = (unsigned)v.batch;
    s.sequence = (unsigned)v.sequence;
    s.heads = (unsigned)v.heads;
    s.kv_heads = (unsigned)v.kv_heads;
    s.group = (unsigned)v.group;
    s.dim = (unsigned)v.dim;
    s.width = (unsigned)round_up(v.dim, 8);
    s.causal = v.causal;
    s.window = (unsigned)min(v.window, (size_t)UINT32_MAX);
    s.places = v.places;
    s.root = v.inv_root;
    s.scale = v.inv_root * LOG2_E;
    return s;
}

/* Returns the shape with `section` set to the number of sequences, at least one, whose two arrays
 * fit into CACHE together. These are the arrays that blocks read completely: keys and values, or
 * queries and dout. heads: the number of heads of each array. */
static bf16_shape in_sections(bf16_shape s, unsigned heads) {
    const size_t bytes = (size_t)4 * s.sequence * heads * s.width;
    s.section = (unsigned)min((size_t)s.batch, max((size_t)1, CACHE / bytes));
    return s;
}

static bool is_packed(const attention_view &v, kernels_type type) {
    return type != KERNELS_BF16 || v.dim % 8;
}

/* Returns the bytes of an array's copy. */
static size_t packed_bytes(const attention_view &v, size_t heads) {
    return round_up(v.batch * v.sequence * heads * round_up(v.dim, 8) * 2, 64);
}

static size_t terms_bytes(const attention_view &v) {
    return round_up(rows_of(v) * sizeof(float2), 64);
}

size_t attention_tensor_scratch(const attention_view &v, kernels_type type) {
    const size_t copies = 2 * (packed_bytes(v, v.heads) + packed_bytes(v, v.kv_heads));
    return terms_bytes(v) + (is_packed(v, type) ? copies : 0);
}

/* Returns the array from which to read: `from`, or a copy in *scratch, which then points past the
 * copy. */
static const uint16_t *source(kernels *k, const attention_view &v, const void *from, size_t heads,
                              kernels_type type, char **scratch) {
    const bf16_shape s = tensor_shape_of(v);
    const size_t rows = v.batch * v.sequence * heads;
    const size_t blocks = (rows * (s.width / 8) + THREADS - 1) / THREADS;
    uint4 *to = (uint4 *)*scratch;
    if (!is_packed(v, type)) return (const uint16_t *)from;
    if (type == KERNELS_BF16)
        LAUNCH(k, pack_kernel<uint16_t>, blocks, 0, s, to, (const uint16_t *)from, rows);
    else
        LAUNCH(k, pack_kernel<float>, blocks, 0, s, to, (const float *)from, rows);
    *scratch += packed_bytes(v, heads);
    return (const uint16_t *)to;
}

static bf16_sources sources_of(kernels *k, const attention_view &v, const void *q, const void *key,
                               const void *value, kernels_type type, char **scratch) {
    bf16_sources in = {};
    in.q = source(k, v, q, v.heads, type, scratch);
    in.key = source(k, v, key, v.kv_heads, type, scratch);
    in.value = source(k, v, value, v.kv_heads, type, scratch);
    return in;
}

void attention_tensor_forward(kernels *k, const attention_view &v, kernels_type type, void *out,
                              float *lse, const void *q, const void *key, const void *value,
                              void *scratch) {
    const bf16_shape s = tensor_shape_of(v);
    char *behind = (char *)scratch;
    const bf16_sources in = sources_of(k, v, q, key, value, type, &behind);
    tensor_forward_run(k, in_sections(s, s.kv_heads), in, type, out, lse);
}

static void form_terms(kernels *k, const bf16_shape &s, float2 *terms, const uint16_t *dout,
                       const void *out, const float *lse, kernels_type type) {
    const size_t rows = (size_t)s.batch * s.sequence * s.heads;
    const size_t blocks = (rows * 16 + THREADS - 1) / THREADS;
    if (type == KERNELS_BF16)
        LAUNCH(k, terms_kernel<uint16_t>, blocks, 0, s, terms, dout, (const uint16_t *)out, lse);
    else
        LAUNCH(k, terms_kernel<float>, blocks, 0, s, terms, dout, (const float *)out, lse);
}

/* The gradient of the queries comes last, because dq may be q. */
void attention_tensor_backward(kernels *k, const attention_view &v, kernels_type type,
                               const attention_backward &b, void *scratch) {
    const bf16_shape s = tensor_shape_of(v);
    float2 *terms = (float2 *)scratch;
    char *behind = (char *)scratch + terms_bytes(v);
    bf16_sources in = sources_of(k, v, b.q, b.key, b.value, type, &behind);
    in.dout = source(k, v, b.dout, v.heads, type, &behind);
    in.terms = terms;
    form_terms(k, s, terms, in.dout, b.out, b.lse, type);
    tensor_keys_run(k, in_sections(s, s.heads), in, type, b.dkey, b.dvalue);
    tensor_queries_run(k, in_sections(s, s.kv_heads), in, b.dq);
}
