/* Attention by matrix products, one head and one block of QUERIES query rows at a time. Scratch
 * holds the scores of one block at a time, as [QUERIES, the number of keys that the block sees].
 * Sums run over blocks and heads in ascending order, so their order depends only on the shape.
 * Heads in bf16 are widened into scratch, and results are rounded on the way from scratch to the
 * output. */
#include <math.h>
#include <stdbool.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

enum { QUERIES = 64 };

/* A block of queries of one head. Positions [first, first + rows) see keys in [from, from + keys).
 * With `causal`, a position sees only keys up to its own; with `window`, only the last `window` of
 * these keys; with `places`, only keys of its own document. */
typedef struct block {
    size_t first, rows, from, keys;
    size_t dim;
    size_t q_stride, kv_stride; /* floats from one token to the next */
    float inv_root;             /* head_dim^-1/2 */
    int causal;
    size_t window;
    const int32_t *places; /* [rows] */
} block;

/* A row's keys, as a range of the block's keys. */
typedef struct row_view {
    size_t first, end;
} row_view;

/* The widened arrays of a head in scratch, each at most [keys,head_dim]; unused if the shape's type
 * is fp32. */
enum { KEY, VALUE, DKEY, DVALUE, Q, OUT, DOUT, WIDENED };

static bool is_wide(const kernels_attention *s) { return s->type == KERNELS_F32; }

static size_t keys_of(const kernels_attention *s) { return s->past + s->sequence; }

static size_t cpu_attention_scratch(const kernels_attention *shape) {
    const size_t rows = shape->sequence < QUERIES ? shape->sequence : QUERIES;
    const size_t head = is_wide(shape) ? 0 : keys_of(shape) * shape->head_dim;
    return WIDENED * head + 2 * rows * keys_of(shape) + QUERIES;
}

static float *widened(const kernels_attention *s, float *scratch, int which) {
    return scratch + (size_t)which * keys_of(s) * s->head_dim;
}

/* Returns the part of scratch that follows the widened heads. */
static float *blocks_scratch(const kernels_attention *s, float *scratch) {
    return is_wide(s) ? scratch : widened(s, scratch, WIDENED);
}

/* Returns the first key that a position sees in causal attention. place: the position's place in
 * its document; NULL: without documents. */
static size_t first_key(size_t window, size_t position, const int32_t *place) {
    const size_t from = window && position >= window ? position - window + 1 : 0;
    const size_t own = place ? position - (size_t)*place : 0;
    return from > own ? from : own;
}

/* Returns the block that begins at query `row` of sample `batch`. */
static block block_at(const kernels_attention *s, size_t batch, size_t row) {
    size_t rows = s->sequence - row < QUERIES ? s->sequence - row : QUERIES;
    const int32_t *places = s->places ? s->places + batch * s->sequence + row : NULL;
    size_t first = s->past + row, from = s->causal ? first_key(s->window, first, places) : 0;
    return (block){.first = first,
                   .rows = rows,
                   .from = from,
                   .keys = (s->causal ? first + rows : keys_of(s)) - from,
                   .dim = s->head_dim,
                   .q_stride = is_wide(s) ? s->heads * s->head_dim : s->head_dim,
                   .kv_stride = is_wide(s) ? s->kv_heads * s->head_dim : s->head_dim,
                   .inv_root = 1.0f / sqrtf((float)s->head_dim),
                   .causal = s->causal,
                   .window = s->window,
                   .places = places};
}

static row_view view_of_row(const block *b, size_t row) {
    if (!b->causal) return (row_view){0, b->keys};
    const int32_t *place = b->places ? b->places + row : NULL;
    return (row_view){first_key(b->window, b->first + row, place) - b->from,
                      b->first + row + 1 - b->from};
}

/* One of the `heads` heads of an array [batch,tokens,heads,head_dim]. */
typedef struct cpu_head {
    size_t batch, tokens, heads, head;
} cpu_head;

/* Returns the offset of the head's first token. */
static size_t head_offset(const kernels_attention *s, cpu_head p) {
    return (p.batch * p.tokens * p.heads + p.head) * s->head_dim;
}

/* Returns the memory for the head's rows in fp32: the array itself, or a place in scratch. */
static float *room_of(const kernels_attention *s, void *array, cpu_head p, float *scratch,
                      int which) {
    return is_wide(s) ? (float *)array + head_offset(s, p) : widened(s, scratch, which);
}

/* Returns the head's rows in fp32: the array itself, or a copy in scratch. */
CPU_CLONES static const float *wide_head(const kernels_attention *s, const void *array, cpu_head p,
                                         float *scratch, int which) {
    if (is_wide(s)) return (const float *)array + head_offset(s, p);
    const uint16_t *from = (const uint16_t *)array + head_offset(s, p);
    float *to = widened(s, scratch, which);
    const size_t dim = s->head_dim, stride = p.heads * dim;
    for (size_t token = 0; token < p.tokens; token++)
        for (size_t i = 0; i < dim; i++) to[token * dim + i] = bf16_wide(from[token * stride + i]);
    return to;
}

/* Copies a head from `room`, the result of room_of, into an array of `type`. Does nothing if `room`
 * is the array itself. */
CPU_CLONES static void put_head(const kernels_attention *s, void *array, kernels_type type,
                                cpu_head p, const float *room) {
    const size_t dim = s->head_dim, stride = p.heads * dim, at = head_offset(s, p);
    if (is_wide(s)) return;
    for (size_t token = 0; token < p.tokens; token++)
        for (size_t i = 0; i < dim; i++)
            lanes_store(array, at + token * stride + i, type, room[token * dim + i]);
}

/* out[rows,keys] = alpha x[rows,dim] y[keys,dim]^T; x has the stride of queries, y the stride of
 * keys */
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
    cpu_matmul_run(k, &p, x, y + b->from * b->kv_stride, out);
}

/* out[rows,dim] = alpha w[rows,keys] y[keys,dim]; out has the stride of queries */
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
    cpu_matmul_run(k, &p, w, y + b->from * b->kv_stride, out);
}

/* out[keys,dim] += alpha w[rows,keys]^T x[rows,dim]; out has the stride of keys */
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
    cpu_matmul_run(k, &p, w, x, out + b->from * b->kv_stride);
}

/* Sets x[keys] to 0 at keys that the row does not see. */
CPU_INLINE void hide_rest(float *x, size_t keys, row_view v) {
    for (size_t j = 0; j < v.first; j++) x[j] = 0.0f;
    for (size_t j = v.end; j < keys; j++) x[j] = 0.0f;
}

/* Replaces scores[rows,keys] by the softmax over the keys that each row sees, and by 0 at the other
 * keys. Sets lse[rows]. */
CPU_CLONES static void softmax_rows(const block *b, float *scores, float *lse) {
    size_t keys = b->keys;
    for (size_t row = 0; row < b->rows; row++) {
        const row_view v = view_of_row(b, row);
        float *s = scores + row * keys + v.first;
        size_t visible = v.end - v.first;
        float most = lanes_largest(s, KERNELS_F32, 0, visible);
        for (size_t j = 0; j < visible; j++) s[j] = lanes_exp(s[j] - most);
        float sum = lanes_sum(s, visible), inverse = 1.0f / sum;
        for (size_t j = 0; j < visible; j++) s[j] *= inverse;
        hide_rest(scores + row * keys, keys, v);
        lse[row] = (float)((double)most + log((double)sum));
    }
}

/* Replaces scores[rows,keys] by the softmax p, using lse[rows]. Replaces dp[rows,keys], the
 * gradient of p, by the gradient of the scores, p (dp - delta[rows]). Both become 0 at keys that a
 * row does not see. */
CPU_CLONES static void softmax_rows_backward(const block *b, float *restrict scores,
                                             float *restrict dp, const float *restrict lse,
                                             const float *restrict delta) {
    size_t keys = b->keys;
    for (size_t row = 0; row < b->rows; row++) {
        float *p = scores + row * keys, *d = dp + row * keys;
        float log_sum = lse[row], minus = delta[row];
        const row_view v = view_of_row(b, row);
        for (size_t j = v.first; j < v.end; j++) {
            p[j] = lanes_exp(p[j] - log_sum);
            d[j] = p[j] * (d[j] - minus);
        }
        hide_rest(p, keys, v);
        hide_rest(d, keys, v);
    }
}

/* delta[rows] = dout . out */
CPU_CLONES static void row_dots(float *restrict delta, const float *restrict dout,
                                const float *restrict out, size_t rows, size_t stride, size_t dim) {
    for (size_t row = 0; row < rows; row++)
        delta[row] = lanes_dot(dout + row * stride, out + row * stride, dim);
}

static void head_forward(kernels *k, const kernels_attention *s, size_t batch, float *out,
                         float *lse, const float *q, const float *key, const float *value,
                         float *scratch) {
    for (size_t first = 0; first < s->sequence; first += QUERIES) {
        block b = block_at(s, batch, first);
        size_t at = first * b.q_stride;
        rows_by_keys(k, &b, b.inv_root, scratch, q + at, key);
        softmax_rows(&b, scratch, lse + first);
        weigh_keys(k, &b, 1.0f, out + at, scratch, value);
    }
}

static void cpu_attention_forward(kernels *k, const kernels_attention *s, void *out, float *lse,
                                  const void *q, const void *key, const void *value,
                                  float *scratch) {
    const size_t group = s->heads / s->kv_heads;
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) {
        const cpu_head kv = {i / s->kv_heads, keys_of(s), s->kv_heads, i % s->kv_heads};
        const float *one_key = wide_head(s, key, kv, scratch, KEY);
        const float *one_value = wide_head(s, value, kv, scratch, VALUE);
        for (size_t head = kv.head * group; head < (kv.head + 1) * group; head++) {
            const cpu_head p = {kv.batch, s->sequence, s->heads, head};
            float *to = room_of(s, out, p, scratch, OUT);
            head_forward(k, s, p.batch, to, lse + (p.batch * s->heads + head) * s->sequence,
                         wide_head(s, q, p, scratch, Q), one_key, one_value,
                         blocks_scratch(s, scratch));
            put_head(s, out, s->type, p, to);
        }
    }
}

typedef struct head_gradient {
    size_t batch;
    float *dq, *dkey, *dvalue;
    const float *dout, *out, *lse, *q, *key, *value;
} head_gradient;

static void head_backward(kernels *k, const kernels_attention *s, const head_gradient *h,
                          float *scratch) {
    for (size_t first = 0; first < s->sequence; first += QUERIES) {
        block b = block_at(s, h->batch, first);
        size_t at = first * b.q_stride;
        float *delta = scratch, *p = delta + QUERIES, *dp = p + b.rows * b.keys;
        row_dots(delta, h->dout + at, h->out + at, b.rows, b.q_stride, b.dim);
        rows_by_keys(k, &b, b.inv_root, p, h->q + at, h->key);
        rows_by_keys(k, &b, 1.0f, dp, h->dout + at, h->value);
        softmax_rows_backward(&b, p, dp, h->lse + first, delta);
        add_to_keys(k, &b, 1.0f, h->dvalue, p, h->dout + at);
        add_to_keys(k, &b, b.inv_root, h->dkey, dp, h->q + at);
        weigh_keys(k, &b, b.inv_root, h->dq + at, dp, h->key); /* comes last, because dq may be q */
    }
}

/* Sets a head's dkey and dvalue to 0 if they are in scratch. Otherwise, the call for the first head
 * clears the whole arrays. */
static void clear_heads(kernels *k, const kernels_attention *s, const head_gradient *h,
                        cpu_head kv) {
    const size_t head = s->sequence * s->head_dim;
    if (is_wide(s) && (kv.batch || kv.head)) return;
    k->zero(k, h->dkey, is_wide(s) ? s->batch * s->kv_heads * head : head);
    k->zero(k, h->dvalue, is_wide(s) ? s->batch * s->kv_heads * head : head);
}

static void cpu_attention_backward(kernels *k, const kernels_attention *s, float *dq, float *dkey,
                                   void *dvalue, const void *dout, const void *out,
                                   const float *lse, const void *q, const void *key,
                                   const void *value, float *scratch) {
    const size_t group = s->heads / s->kv_heads;
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) {
        const cpu_head kv = {i / s->kv_heads, keys_of(s), s->kv_heads, i % s->kv_heads};
        head_gradient h = {.batch = kv.batch,
                           .dkey = room_of(s, dkey, kv, scratch, DKEY),
                           .dvalue = room_of(s, dvalue, kv, scratch, DVALUE),
                           .key = wide_head(s, key, kv, scratch, KEY),
                           .value = wide_head(s, value, kv, scratch, VALUE)};
        clear_heads(k, s, &h, kv);
        for (size_t head = kv.head * group; head < (kv.head + 1) * group; head++) {
            const cpu_head p = {kv.batch, s->sequence, s->heads, head};
            h.dq = room_of(s, dq, p, scratch, Q); /* in scratch, in place of the widened q */
            h.dout = wide_head(s, dout, p, scratch, DOUT);
            h.out = wide_head(s, out, p, scratch, OUT);
            h.lse = lse + (p.batch * s->heads + head) * s->sequence;
            h.q = wide_head(s, q, p, scratch, Q);
            head_backward(k, s, &h, blocks_scratch(s, scratch));
            put_head(s, dq, KERNELS_F32, p, h.dq);
        }
        put_head(s, dkey, KERNELS_F32, kv, h.dkey);
        put_head(s, dvalue, s->type, kv, h.dvalue);
    }
}

void cpu_attention_fill(kernels *k) {
    k->attention_scratch = cpu_attention_scratch;
    k->attention_forward = cpu_attention_forward;
    k->attention_backward = cpu_attention_backward;
}
