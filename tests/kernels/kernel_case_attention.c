/* Conformance: grouped-query attention, causal, in windows, in documents and full. The reference
 * keeps the whole softmax, in fp64. */
#include <math.h>
#include <stdio.h>

#include "kernel_cases.h"

typedef struct heads {
    kernels_attention s; /* with places of the host */
    const double *q, *key, *value;
    const float *dout;
    double *out, *lse; /* written by attend */
    double *scores;    /* [sequence] */
} heads;

static size_t tokens(const kernels_attention *s) { return s->batch * s->sequence; }
static size_t q_floats(const kernels_attention *s) { return tokens(s) * s->heads * s->head_dim; }
static size_t kv_floats(const kernels_attention *s) {
    return tokens(s) * s->kv_heads * s->head_dim;
}

/* The first key that position t sees. */
static size_t first_of(const kernels_attention *s, size_t batch, size_t t) {
    const size_t own = s->places ? t - (size_t)s->places[batch * s->sequence + t] : 0;
    const size_t first = s->window && t >= s->window ? t + 1 - s->window : 0;
    return first > own ? first : own;
}

static void attend_row(heads *h, size_t batch, size_t head, size_t t) {
    const kernels_attention *s = &h->s;
    size_t d = s->head_dim, kv_row = s->kv_heads * d;
    size_t at = ((batch * s->sequence + t) * s->heads + head) * d;
    size_t kv = batch * s->sequence * kv_row + head / (s->heads / s->kv_heads) * d;
    size_t visible = s->causal ? t + 1 : s->sequence;
    double sum = 0.0;
    for (size_t j = first_of(s, batch, t); j < visible; j++) {
        double dot = 0.0;
        for (size_t i = 0; i < d; i++) dot += h->q[at + i] * h->key[kv + j * kv_row + i];
        h->scores[j] = exp(dot / sqrt((double)d));
        sum += h->scores[j];
    }
    h->lse[(batch * s->heads + head) * s->sequence + t] = log(sum);
    for (size_t i = 0; i < d; i++) {
        double out = 0.0;
        for (size_t j = first_of(s, batch, t); j < visible; j++)
            out += h->scores[j] / sum * h->value[kv + j * kv_row + i];
        h->out[at + i] = out;
    }
}

/* Adds the row's share to the gradients, by the derivative of the softmax. */
static void attend_row_backward(const heads *h, size_t batch, size_t head, size_t t, double *dq,
                                double *dkey, double *dvalue) {
    const kernels_attention *s = &h->s;
    size_t d = s->head_dim, kv_row = s->kv_heads * d;
    size_t at = ((batch * s->sequence + t) * s->heads + head) * d;
    size_t kv = batch * s->sequence * kv_row + head / (s->heads / s->kv_heads) * d;
    size_t visible = s->causal ? t + 1 : s->sequence;
    double sum = 0.0, mean = 0.0, root = sqrt((double)d);
    for (size_t j = first_of(s, batch, t); j < visible; j++) {
        double dot = 0.0;
        for (size_t i = 0; i < d; i++) dot += h->q[at + i] * h->key[kv + j * kv_row + i];
        h->scores[j] = exp(dot / root);
        sum += h->scores[j];
    }
    for (size_t i = 0; i < d; i++) mean += (double)h->dout[at + i] * h->out[at + i];
    for (size_t j = first_of(s, batch, t); j < visible; j++) {
        double p = h->scores[j] / sum, dp = 0.0;
        size_t from = kv + j * kv_row;
        for (size_t i = 0; i < d; i++) dp += (double)h->dout[at + i] * h->value[from + i];
        for (size_t i = 0; i < d; i++) {
            dq[at + i] += p * (dp - mean) * h->key[from + i] / root;
            dkey[from + i] += p * (dp - mean) * h->q[at + i] / root;
            dvalue[from + i] += p * (double)h->dout[at + i];
        }
    }
}

static double attend(void *ctx) {
    heads *h = ctx;
    for (size_t batch = 0; batch < h->s.batch; batch++)
        for (size_t head = 0; head < h->s.heads; head++)
            for (size_t t = 0; t < h->s.sequence; t++) attend_row(h, batch, head, t);
    double loss = 0.0;
    for (size_t i = 0; i < q_floats(&h->s); i++) loss += (double)h->dout[i] * h->out[i];
    return loss;
}

typedef struct inputs {
    float *q, *key, *value, *dout;        /* host */
    void *q_here, *key_here, *value_here; /* the backend's */
    double *wide_q, *wide_key, *wide_value;
    void *out;
    float *lse, *scratch;
    heads reference;
    kernels_attention s; /* with places of the backend */
} inputs;

static inputs prepare(conform *c, const kernels_attention *s) {
    size_t nq = q_floats(s), nkv = kv_floats(s), rows = tokens(s) * s->heads;
    inputs in = {.q = conform_random(c, nq),
                 .key = conform_random(c, nkv),
                 .value = conform_random(c, nkv),
                 .dout = conform_random(c, nq)};
    for (size_t i = 0; i < nq; i++) in.q[i] *= 4.0f;
    conform_round(in.q, nq, s->type);
    conform_round(in.key, nkv, s->type);
    conform_round(in.value, nkv, s->type);
    conform_round(in.dout, nq, s->type);
    in.wide_q = conform_wide(c, in.q, nq);
    in.wide_key = conform_wide(c, in.key, nkv);
    in.wide_value = conform_wide(c, in.value, nkv);
    in.q_here = conform_typed(c, in.q, nq, s->type);
    in.key_here = conform_typed(c, in.key, nkv, s->type);
    in.value_here = conform_typed(c, in.value, nkv, s->type);
    in.out = conform_poisoned_typed(c, nq, s->type);
    in.lse = conform_poisoned(c, rows, 4);
    in.scratch = conform_poisoned(c, c->k->attention_scratch(s), 4);
    in.reference = (heads){.s = *s,
                           .q = in.wide_q,
                           .key = in.wide_key,
                           .value = in.wide_value,
                           .dout = in.dout,
                           .out = conform_host(c, nq, 8),
                           .lse = conform_host(c, rows, 8),
                           .scores = conform_host(c, s->sequence, 8)};
    in.s = *s;
    if (s->places) in.s.places = conform_given(c, s->places, tokens(s), sizeof *s->places);
    return in;
}

/* What rounded operands and results may cost; the reference rounds nothing. */
static double tolerance_of(const kernels_attention *s, double fp32) {
    return s->operands == KERNELS_BF16 || s->type == KERNELS_BF16 ? 1e-2 : fp32;
}

static void name(conform *c, char text[112], const char *direction, const kernels_attention *s) {
    snprintf(text, 112, "attention_%s %zu x %zu (%zu), %zu of %zu heads of %zu%s%s", direction,
             s->batch, s->sequence, s->window, s->kv_heads, s->heads, s->head_dim,
             s->places   ? ", documents"
             : s->causal ? ", causal"
                         : "",
             s->type == KERNELS_BF16       ? ", bf16"
             : s->operands == KERNELS_BF16 ? ", operands in bf16"
                                           : "");
    c->what = text;
}

static void forward_of(conform *c, const kernels_attention *s) {
    char text[112];
    name(c, text, "forward", s);
    inputs in = prepare(c, s);
    attend(&in.reference);
    c->k->attention_forward(c->k, &in.s, in.out, in.lse, in.q_here, in.key_here, in.value_here,
                            in.scratch);
    conform_close(c, "out", conform_fetch_typed(c, in.out, q_floats(s), s->type), in.reference.out,
                  q_floats(s), tolerance_of(s, 3e-6));
    conform_close(c, "lse", conform_fetch_floats(c, in.lse, tokens(s) * s->heads), in.reference.lse,
                  tokens(s) * s->heads, tolerance_of(s, 1e-6));
    conform_finish(c);
    c->what = "attention_forward";
}

static void backward_of(conform *c, const kernels_attention *s) {
    kernels *k = c->k;
    char text[112];
    if (tolerance_of(s, 0.0) > 0.0 && s->sequence == 1) return; /* dq is 0 but for rounding */
    name(c, text, "backward", s);
    inputs in = prepare(c, s);
    const double tolerance = tolerance_of(s, 2e-5);
    size_t nq = q_floats(s), nkv = kv_floats(s);
    void *dout = conform_typed(c, in.dout, nq, s->type);
    float *dq = conform_poisoned(c, nq, 4), *dkey = conform_poisoned(c, nkv, 4);
    void *dvalue = conform_poisoned_typed(c, nkv, s->type);
    k->attention_forward(k, &in.s, in.out, in.lse, in.q_here, in.key_here, in.value_here,
                         in.scratch);
    k->attention_backward(k, &in.s, dq, dkey, dvalue, dout, in.out, in.lse, in.q_here, in.key_here,
                          in.value_here, in.scratch);
    float *got = conform_fetch_floats(c, dq, nq), *got_key = conform_fetch_floats(c, dkey, nkv);
    float *got_value = conform_fetch_typed(c, dvalue, nkv, s->type);
    double *want = conform_host(c, nq, 8), *want_key = conform_host(c, nkv, 8);
    double *want_value = conform_host(c, nkv, 8);
    attend(&in.reference);
    for (size_t i = 0; i < tokens(s) * s->heads; i++)
        attend_row_backward(&in.reference, i / s->heads / s->sequence, i % s->heads,
                            i / s->heads % s->sequence, want, want_key, want_value);
    conform_close(c, "dq", got, want, nq, tolerance);
    conform_close(c, "dkey", got_key, want_key, nkv, tolerance);
    conform_close(c, "dvalue", got_value, want_value, nkv, tolerance);
    if (nq < 300) { /* the derivative itself is right */
        conform_gradient(c, "dq", got, in.wide_q, nq, attend, &in.reference, tolerance);
        conform_gradient(c, "dkey", got_key, in.wide_key, nkv, attend, &in.reference, tolerance);
        conform_gradient(c, "dvalue", got_value, in.wide_value, nkv, attend, &in.reference,
                         tolerance);
    }
    if (s->type == KERNELS_F32) {
        k->attention_backward(k, &in.s, in.q_here, dkey, dvalue, dout, in.out, in.lse, in.q_here,
                              in.key_here, in.value_here, in.scratch);
        conform_close(c, "dq over q", conform_fetch_floats(c, in.q_here, nq),
                      conform_wide(c, got, nq), nq, 0.0);
    }
    conform_finish(c);
    c->what = "attention_backward";
}

/* Lengths around 64 and widths around 32, 64, 96 and 128 are where a device's tiles end. */
static const kernels_attention shapes[] = {
    {.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
    {.batch = 2, .sequence = 5, .heads = 2, .kv_heads = 1, .head_dim = 6},
    {.batch = 1, .sequence = 131, .heads = 3, .kv_heads = 3, .head_dim = 4},
    {.batch = 2, .sequence = 70, .heads = 4, .kv_heads = 2, .head_dim = 16},
    {.batch = 1, .sequence = 64, .heads = 2, .kv_heads = 1, .head_dim = 8},
    {.batch = 2, .sequence = 65, .heads = 1, .kv_heads = 1, .head_dim = 64},
    {.batch = 1, .sequence = 33, .heads = 3, .kv_heads = 1, .head_dim = 80},
    {.batch = 1, .sequence = 71, .heads = 1, .kv_heads = 1, .head_dim = 96},
    {.batch = 1, .sequence = 40, .heads = 1, .kv_heads = 1, .head_dim = 101},
    {.batch = 1, .sequence = 129, .heads = 2, .kv_heads = 1, .head_dim = 128},
    {.batch = 1, .sequence = 7, .heads = 1, .kv_heads = 1, .head_dim = 144},
};

static void every_shape(conform *c, void (*test)(conform *, const kernels_attention *)) {
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int which = 0; which < 4; which++) {
            kernels_attention shape = shapes[i];
            shape.causal = (which + which / 3 + (int)i) % 2;
            shape.type = which == 3 ? KERNELS_BF16 : KERNELS_F32;
            shape.operands = which >= 2 ? KERNELS_BF16 : KERNELS_F32;
            test(c, &shape);
        }
}

/* Windows end within tiles, at their edges, and far behind; one is a single key, one covers all. */
static const kernels_attention windows[] = {
    {.batch = 1, .sequence = 9, .heads = 1, .kv_heads = 1, .head_dim = 4, .window = 1},
    {.batch = 2, .sequence = 7, .heads = 2, .kv_heads = 1, .head_dim = 6, .window = 3},
    {.batch = 1, .sequence = 70, .heads = 2, .kv_heads = 1, .head_dim = 8, .window = 64},
    {.batch = 1, .sequence = 150, .heads = 2, .kv_heads = 2, .head_dim = 16, .window = 5},
    {.batch = 1, .sequence = 260, .heads = 2, .kv_heads = 1, .head_dim = 24, .window = 63},
    {.batch = 1, .sequence = 260, .heads = 1, .kv_heads = 1, .head_dim = 40, .window = 65},
    {.batch = 1, .sequence = 300, .heads = 1, .kv_heads = 1, .head_dim = 8, .window = 127},
    {.batch = 1, .sequence = 200, .heads = 1, .kv_heads = 1, .head_dim = 96, .window = 129},
    {.batch = 1, .sequence = 90, .heads = 1, .kv_heads = 1, .head_dim = 144, .window = 20},
    {.batch = 1, .sequence = 80, .heads = 1, .kv_heads = 1, .head_dim = 16, .window = 1000},
};

static void every_window(conform *c, void (*test)(conform *, const kernels_attention *)) {
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
        for (int which = 0; which < 3; which++) {
            kernels_attention shape = windows[i];
            shape.causal = 1;
            shape.type = which == 2 ? KERNELS_BF16 : KERNELS_F32;
            shape.operands = which >= 1 ? KERNELS_BF16 : KERNELS_F32;
            /* dq is 0 but for rounding, where a row sees a single key */
            if (shape.window > 1 || test == forward_of) test(c, &shape);
        }
}

/* Places of documents of some lengths, other ones in each sample, the last cut off. */
static int32_t *documents(conform *c, const kernels_attention *s) {
    static const size_t lengths[] = {37, 1, 64, 90, 5, 128, 2, 63, 3};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    int32_t *places = conform_host(c, tokens(s), sizeof *places);
    for (size_t batch = 0; batch < s->batch; batch++) {
        int32_t *own = places + batch * s->sequence;
        for (size_t t = 0, i = batch * 4, left = 0; t < s->sequence; t++, left--) {
            if (left == 0) left = lengths[i++ % LENGTHS];
            own[t] = t && left != lengths[(i - 1) % LENGTHS] ? own[t - 1] + 1 : 0;
        }
    }
    return places;
}

static const kernels_attention packed[] = {
    {.batch = 2, .sequence = 50, .heads = 2, .kv_heads = 1, .head_dim = 6},
    {.batch = 2, .sequence = 300, .heads = 2, .kv_heads = 1, .head_dim = 24},
    {.batch = 1, .sequence = 420, .heads = 1, .kv_heads = 1, .head_dim = 64},
    {.batch = 2, .sequence = 260, .heads = 4, .kv_heads = 2, .head_dim = 16, .window = 40},
    {.batch = 1, .sequence = 200, .heads = 1, .kv_heads = 1, .head_dim = 96, .window = 129},
    {.batch = 1, .sequence = 129, .heads = 2, .kv_heads = 1, .head_dim = 128, .window = 7},
    {.batch = 2, .sequence = 150, .heads = 2, .kv_heads = 1, .head_dim = 144},
    {.batch = 1, .sequence = 90, .heads = 1, .kv_heads = 1, .head_dim = 144, .window = 20},
};

static void every_packed_shape(conform *c, void (*test)(conform *, const kernels_attention *)) {
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        for (int which = 0; which < 3; which++) {
            kernels_attention shape = packed[i];
            shape.causal = 1;
            shape.type = which == 2 ? KERNELS_BF16 : KERNELS_F32;
            shape.operands = which >= 1 ? KERNELS_BF16 : KERNELS_F32;
            shape.places = documents(c, &shape);
            test(c, &shape);
        }
}

/* In bf16 tiles have up to 128 queries and 128 keys, and the next is copied while one is used. */
static const kernels_attention bf16_shapes[] = {
    {1, 63, 2, 1, 32, 1, KERNELS_BF16, KERNELS_BF16, 0, 0, NULL},
    {1, 200, 1, 1, 8, 0, KERNELS_BF16, KERNELS_BF16, 0, 0, NULL},
    {1, 200, 3, 1, 16, 1, KERNELS_BF16, KERNELS_BF16, 0, 0, NULL},
    {1, 257, 1, 1, 24, 1, KERNELS_BF16, KERNELS_BF16, 0, 0, NULL},
    {1, 300, 1, 1, 12, 1, KERNELS_F32, KERNELS_BF16, 0, 0, NULL},
    {1, 129, 1, 1, 128, 0, KERNELS_BF16, KERNELS_BF16, 0, 0, NULL},
    {1, 20, 2, 2, 160, 1, KERNELS_BF16, KERNELS_BF16, 0, 0, NULL},
};

static void every_bf16_shape(conform *c, void (*test)(conform *, const kernels_attention *)) {
    for (size_t i = 0; i < sizeof bf16_shapes / sizeof bf16_shapes[0]; i++)
        test(c, &bf16_shapes[i]);
}

/* Scores that grow from tile to tile: what was summed has to be scaled down again and again. */
static void rising_scores(conform *c) {
    const kernels_attention s = {1, 200, 1, 1, 8, 0, KERNELS_BF16, KERNELS_BF16, 0, 0, NULL};
    inputs in = prepare(c, &s);
    for (size_t i = 0; i < kv_floats(&s); i++)
        in.key[i] = fabsf(in.q[i % 8]) + (float)(i / 8) / 10.0f;
    for (size_t i = 0; i < q_floats(&s); i++) in.q[i] = fabsf(in.q[i]) + 1.0f;
    conform_round(in.q, q_floats(&s), s.type);
    conform_round(in.key, kv_floats(&s), s.type);
    in.reference.q = conform_wide(c, in.q, q_floats(&s));
    in.reference.key = conform_wide(c, in.key, kv_floats(&s));
    attend(&in.reference);
    c->what = "attention_forward of scores that rise";
    c->k->attention_forward(c->k, &s, in.out, in.lse, conform_typed(c, in.q, q_floats(&s), s.type),
                            conform_typed(c, in.key, kv_floats(&s), s.type), in.value_here,
                            in.scratch);
    conform_close(c, "out", conform_fetch_typed(c, in.out, q_floats(&s), s.type), in.reference.out,
                  q_floats(&s), 1e-2);
    conform_close(c, "lse", conform_fetch_floats(c, in.lse, tokens(&s)), in.reference.lse,
                  tokens(&s), 1e-6);
    conform_finish(c);
}

void case_attention_forward(conform *c) {
    every_shape(c, forward_of);
    every_window(c, forward_of);
    every_packed_shape(c, forward_of);
    every_bf16_shape(c, forward_of);
    rising_scores(c);
    for (int causal = 0; causal < 2; causal++)
        forward_of(c, &(kernels_attention){1, 300, 2, 1, 64, causal, KERNELS_F32, KERNELS_F32, 0, 0,
                                           NULL});
}

void case_attention_backward(conform *c) {
    every_shape(c, backward_of);
    every_window(c, backward_of);
    every_packed_shape(c, backward_of);
    every_bf16_shape(c, backward_of);
}

enum { RESULTS = 5 };

/* out, lse, dq, dkey, dvalue of the first sequence, on the host. `in` has room for more. */
static void results_of(conform *c, const kernels_attention *s, const inputs *in, const void *dout,
                       float *results[RESULTS], size_t floats[RESULTS]) {
    kernels *k = c->k;
    const size_t all[RESULTS] = {q_floats(s), tokens(s) * s->heads, q_floats(s), kv_floats(s),
                                 kv_floats(s)};
    const kernels_type types[RESULTS] = {s->type, KERNELS_F32, KERNELS_F32, KERNELS_F32, s->type};
    void *r[RESULTS];
    for (int i = 0; i < RESULTS; i++) r[i] = conform_poisoned_typed(c, all[i], types[i]);
    k->attention_forward(k, s, r[0], r[1], in->q_here, in->key_here, in->value_here, in->scratch);
    k->attention_backward(k, s, r[2], r[3], r[4], dout, r[0], r[1], in->q_here, in->key_here,
                          in->value_here, in->scratch);
    for (int i = 0; i < RESULTS; i++) {
        floats[i] = all[i] / s->batch;
        results[i] = conform_fetch_typed(c, r[i], floats[i], types[i]);
    }
}

/* A sequence's bits are the same whatever else is in the batch. */
static void alone(conform *c, const kernels_attention *s) {
    static const char *const names[RESULTS] = {"out", "lse", "dq", "dkey", "dvalue"};
    kernels_attention first = *s;
    inputs in = prepare(c, s);
    const void *dout = conform_typed(c, in.dout, q_floats(s), s->type);
    float *got[RESULTS], *want[RESULTS];
    size_t n[RESULTS];
    first.batch = 1;
    results_of(c, s, &in, dout, want, n);
    results_of(c, &first, &in, dout, got, n);
    for (int i = 0; i < RESULTS; i++)
        conform_close(c, names[i], got[i], conform_wide(c, want[i], n[i]), n[i], 0.0);
    conform_finish(c);
}

/* A window that covers all changes no bit, nor does a document. */
static void covered(conform *c, const kernels_attention *s, int in_document) {
    static const char *const names[RESULTS] = {"out", "lse", "dq", "dkey", "dvalue"};
    kernels_attention limited = *s;
    inputs in = prepare(c, s);
    const void *dout = conform_typed(c, in.dout, q_floats(s), s->type);
    float *got[RESULTS], *want[RESULTS];
    size_t n[RESULTS];
    int32_t *places = conform_host(c, tokens(s), sizeof *places);
    for (size_t i = 0; i < tokens(s); i++) places[i] = (int32_t)(i % s->sequence);
    if (in_document)
        limited.places = conform_given(c, places, tokens(s), sizeof *places);
    else
        limited.window = s->sequence;
    results_of(c, s, &in, dout, want, n);
    results_of(c, &limited, &in, dout, got, n);
    for (int i = 0; i < RESULTS; i++)
        conform_close(c, names[i], got[i], conform_wide(c, want[i], n[i]), n[i], 0.0);
    conform_finish(c);
}

/* Keys far outside of all windows, or in documents before, are not even read: they may be NaN. */
static void unread(conform *c, const kernels_attention *s) {
    static const char *const names[RESULTS] = {"out", "lse", "dq", "dkey", "dvalue"};
    enum { UNREAD = 128, SEEN = 256 }; /* tokens; those from SEEN on are compared */
    inputs in = prepare(c, s);
    const void *dout = conform_typed(c, in.dout, q_floats(s), s->type);
    float *got[RESULTS], *want[RESULTS];
    size_t n[RESULTS];
    results_of(c, &in.s, &in, dout, want, n);
    for (size_t i = 0; i < UNREAD * s->head_dim; i++) in.key[i] = in.value[i] = NAN;
    in.key_here = conform_typed(c, in.key, kv_floats(s), s->type);
    in.value_here = conform_typed(c, in.value, kv_floats(s), s->type);
    results_of(c, &in.s, &in, dout, got, n);
    for (int i = 0; i < RESULTS; i++) {
        const size_t from = n[i] / s->sequence * SEEN;
        conform_close(c, names[i], got[i] + from, conform_wide(c, want[i] + from, n[i] - from),
                      n[i] - from, 0.0);
    }
    conform_finish(c);
}

void case_attention_alone(conform *c) {
    static const kernels_type types[][2] = {
        {KERNELS_F32, KERNELS_F32}, {KERNELS_F32, KERNELS_BF16}, {KERNELS_BF16, KERNELS_BF16}};
    int32_t places[384];
    for (int32_t t = 0; t < 384; t++) places[t] = t % 192;
    for (int i = 0; i < 3; i++) {
        const kernels_type type = types[i][0], operands = types[i][1];
        c->what = "attention in windows that leave keys out";
        unread(c, &(kernels_attention){1, 384, 1, 1, 16, 1, type, operands, 64, 0, NULL});
        c->what = "attention in documents that leave keys out";
        unread(c, &(kernels_attention){1, 384, 1, 1, 16, 1, type, operands, 0, 0, places});
        c->what = "attention in a window that covers all";
        covered(c, &(kernels_attention){2, 150, 2, 1, 20, 1, type, operands, 0, 0, NULL}, 0);
        c->what = "attention in a document that covers all";
        covered(c, &(kernels_attention){2, 150, 2, 1, 20, 1, type, operands, 0, 0, NULL}, 1);
        c->what = "attention of one sequence and of three";
        alone(c, &(kernels_attention){3, 67, 2, 1, 20, 1, type, operands, 0, 0, NULL});
    }
}
