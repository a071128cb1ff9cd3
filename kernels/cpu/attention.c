/* Attention, a head and a block of QUERIES query rows at a time, by matrix products: the
 * scores of a block exist only in scratch, [QUERIES, keys up to the block's end]. The order of
 * every sum follows the shape: blocks ascending, heads ascending. */
#include <math.h>

#include "cpu.h"
#include "lanes.h"

enum { QUERIES = 64 };

/* One head's view of a block of queries: rows [first, first + rows) see keys [0, keys), or with
 * `causal` those up to themselves. */
typedef struct block {
    size_t first, rows, keys;
    size_t dim;
    size_t q_stride, kv_stride; /* floats from one token to the next */
    float inv_root;             /* head_dim^-1/2 */
    int causal;
} block;

size_t cpu_attention_scratch(const kernels_attention *shape) {
    size_t rows = shape->sequence < QUERIES ? shape->sequence : QUERIES;
    return 2 * rows * shape->sequence + QUERIES;
}

static block block_at(const kernels_attention *s, size_t first) {
    size_t rows = s->sequence - first < QUERIES ? s->sequence - first : QUERIES;
    return (block){.first = first,
                   .rows = rows,
                   .keys = s->causal ? first + rows : s->sequence,
                   .dim = s->head_dim,
                   .q_stride = s->heads * s->head_dim,
                   .kv_stride = s->kv_heads * s->head_dim,
                   .inv_root = 1.0f / sqrtf((float)s->head_dim),
                   .causal = s->causal};
}

/* Offset of a head's first token in [batch,sequence,heads,head_dim]. */
static size_t head_offset(const kernels_attention *s, size_t batch, size_t heads, size_t head) {
    return (batch * s->sequence * heads + head) * s->head_dim;
}

/* out[rows,keys] = alpha x[rows,dim] y[keys,dim]^T; x is strided as queries, y as keys */
static void rows_by_keys(kernels *k, const block *b, float alpha, float *out, const float *x,
                         const float *y) {
    cpu_product p = {.transpose_a = 'N',
                     .transpose_b = 'T',
                     .m = b->rows,
                     .n = b->keys,
                     .depth = b->dim,
                     .alpha = alpha,
                     .beta = 0.0f,
                     .lda = b->q_stride,
                     .ldb = b->kv_stride,
                     .ldc = b->keys};
    cpu_sgemm(k, &p, x, y, out);
}

/* out[rows,dim] = alpha w[rows,keys] y[keys,dim]; out is strided as queries */
static void weigh_keys(kernels *k, const block *b, float alpha, float *out, const float *w,
                       const float *y) {
    cpu_product p = {.transpose_a = 'N',
                     .transpose_b = 'N',
                     .m = b->rows,
                     .n = b->dim,
                     .depth = b->keys,
                     .alpha = alpha,
                     .beta = 0.0f,
                     .lda = b->keys,
                     .ldb = b->kv_stride,
                     .ldc = b->q_stride};
    cpu_sgemm(k, &p, w, y, out);
}

/* out[keys,dim] += alpha w[rows,keys]^T x[rows,dim]; out is strided as keys */
static void add_to_keys(kernels *k, const block *b, float alpha, float *out, const float *w,
                        const float *x) {
    cpu_product p = {.transpose_a = 'T',
                     .transpose_b = 'N',
                     .m = b->keys,
                     .n = b->dim,
                     .depth = b->rows,
                     .alpha = alpha,
                     .beta = 1.0f,
                     .lda = b->keys,
                     .ldb = b->q_stride,
                     .ldc = b->kv_stride};
    cpu_sgemm(k, &p, w, x, out);
}

/* Scores [rows,keys] become the softmax over each row's visible keys, the rest 0; lse [rows]. */
CPU_CLONES static void softmax_rows(const block *b, float *scores, float *lse) {
    size_t keys = b->keys;
    for (size_t row = 0; row < b->rows; row++) {
        float *s = scores + row * keys;
        size_t visible = b->causal ? b->first + row + 1 : keys;
        float most = lanes_max(s, visible);
        for (size_t j = 0; j < visible; j++) s[j] = lanes_exp(s[j] - most);
        float sum = lanes_sum(s, visible), inverse = 1.0f / sum;
        for (size_t j = 0; j < visible; j++) s[j] *= inverse;
        for (size_t j = visible; j < keys; j++) s[j] = 0.0f;
        lse[row] = (float)((double)most + log((double)sum));
    }
}

/* Scores [rows,keys] become the softmax p, from lse [rows]; dp [rows,keys], the gradient of p,
 * becomes that of the scores, p (dp - delta[rows]). Both are 0 at keys that a row does not see. */
CPU_CLONES static void softmax_rows_backward(const block *b, float *restrict scores,
                                             float *restrict dp, const float *restrict lse,
                                             const float *restrict delta) {
    size_t keys = b->keys;
    for (size_t row = 0; row < b->rows; row++) {
        float *p = scores + row * keys, *d = dp + row * keys;
        float log_sum = lse[row], minus = delta[row];
        size_t visible = b->causal ? b->first + row + 1 : keys;
        for (size_t j = 0; j < visible; j++) {
            p[j] = lanes_exp(p[j] - log_sum);
            d[j] = p[j] * (d[j] - minus);
        }
        for (size_t j = visible; j < keys; j++) p[j] = d[j] = 0.0f;
    }
}

/* delta[rows] = dout . out */
CPU_CLONES static void row_dots(float *restrict delta, const float *restrict dout,
                                const float *restrict out, size_t rows, size_t stride, size_t dim) {
    for (size_t row = 0; row < rows; row++)
        delta[row] = lanes_dot(dout + row * stride, out + row * stride, dim);
}

static void head_forward(kernels *k, const kernels_attention *s, float *out, float *lse,
                         const float *q, const float *key, const float *value, float *scratch) {
    for (size_t first = 0; first < s->sequence; first += QUERIES) {
        block b = block_at(s, first);
        size_t at = first * b.q_stride;
        rows_by_keys(k, &b, b.inv_root, scratch, q + at, key);
        softmax_rows(&b, scratch, lse + first);
        weigh_keys(k, &b, 1.0f, out + at, scratch, value);
    }
}

void cpu_attention_forward(kernels *k, const kernels_attention *shape, float *out, float *lse,
                           const float *q, const float *key, const float *value, float *scratch) {
    size_t group = shape->heads / shape->kv_heads;
    for (size_t batch = 0; batch < shape->batch; batch++)
        for (size_t head = 0; head < shape->heads; head++) {
            size_t at = head_offset(shape, batch, shape->heads, head);
            size_t kv = head_offset(shape, batch, shape->kv_heads, head / group);
            head_forward(k, shape, out + at, lse + (batch * shape->heads + head) * shape->sequence,
                         q + at, key + kv, value + kv, scratch);
        }
}

typedef struct head_gradient {
    float *dq, *dkey, *dvalue;
    const float *dout, *out, *lse, *q, *key, *value;
} head_gradient;

static void head_backward(kernels *k, const kernels_attention *s, const head_gradient *h,
                          float *scratch) {
    for (size_t first = 0; first < s->sequence; first += QUERIES) {
        block b = block_at(s, first);
        size_t at = first * b.q_stride;
        float *delta = scratch, *p = delta + QUERIES, *dp = p + b.rows * b.keys;
        row_dots(delta, h->dout + at, h->out + at, b.rows, b.q_stride, b.dim);
        rows_by_keys(k, &b, b.inv_root, p, h->q + at, h->key);
        rows_by_keys(k, &b, 1.0f, dp, h->dout + at, h->value);
        softmax_rows_backward(&b, p, dp, h->lse + first, delta);
        add_to_keys(k, &b, 1.0f, h->dvalue, p, h->dout + at);
        add_to_keys(k, &b, b.inv_root, h->dkey, dp, h->q + at);
        weigh_keys(k, &b, b.inv_root, h->dq + at, dp, h->key); /* last: dq may be q */
    }
}

void cpu_attention_backward(kernels *k, const kernels_attention *shape, float *dq, float *dkey,
                            float *dvalue, const float *dout, const float *out, const float *lse,
                            const float *q, const float *key, const float *value, float *scratch) {
    size_t group = shape->heads / shape->kv_heads;
    size_t kv_floats = shape->batch * shape->sequence * shape->kv_heads * shape->head_dim;
    cpu_zero(k, dkey, kv_floats);
    cpu_zero(k, dvalue, kv_floats);
    for (size_t batch = 0; batch < shape->batch; batch++)
        for (size_t head = 0; head < shape->heads; head++) {
            size_t at = head_offset(shape, batch, shape->heads, head);
            size_t kv = head_offset(shape, batch, shape->kv_heads, head / group);
            head_gradient h = {.dq = dq + at,
                               .dkey = dkey + kv,
                               .dvalue = dvalue + kv,
                               .dout = dout + at,
                               .out = out + at,
                               .lse = lse + (batch * shape->heads + head) * shape->sequence,
                               .q = q + at,
                               .key = key + kv,
                               .value = value + kv};
            head_backward(k, shape, &h, scratch);
        }
}
