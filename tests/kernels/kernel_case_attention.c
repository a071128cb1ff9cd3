/* Conformance: grouped-query attention, causal and full. The reference keeps the whole softmax, in
 * fp64. */
#include <math.h>
#include <stdio.h>

#include "kernel_cases.h"

typedef struct heads {
    kernels_attention s;
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

static void attend_row(heads *h, size_t batch, size_t head, size_t t) {
    const kernels_attention *s = &h->s;
    size_t d = s->head_dim, kv_row = s->kv_heads * d;
    size_t at = ((batch * s->sequence + t) * s->heads + head) * d;
    size_t kv = batch * s->sequence * kv_row + head / (s->heads / s->kv_heads) * d;
    size_t visible = s->causal ? t + 1 : s->sequence;
    double sum = 0.0;
    for (size_t j = 0; j < visible; j++) {
        double dot = 0.0;
        for (size_t i = 0; i < d; i++) dot += h->q[at + i] * h->key[kv + j * kv_row + i];
        h->scores[j] = exp(dot / sqrt((double)d));
        sum += h->scores[j];
    }
    h->lse[(batch * s->heads + head) * s->sequence + t] = log(sum);
    for (size_t i = 0; i < d; i++) {
        double out = 0.0;
        for (size_t j = 0; j < visible; j++)
            out += h->scores[j] / sum * h->value[kv + j * kv_row + i];
        h->out[at + i] = out;
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
    float *q, *key, *value, *dout; /* host */
    float *dq, *dkey, *dvalue;     /* the backend's */
    double *wide_q, *wide_key, *wide_value;
    float *out, *lse, *scratch;
    heads reference;
} inputs;

static inputs prepare(conform *c, const kernels_attention *s) {
    size_t nq = q_floats(s), nkv = kv_floats(s), rows = tokens(s) * s->heads;
    inputs in = {.q = conform_random(c, nq),
                 .key = conform_random(c, nkv),
                 .value = conform_random(c, nkv),
                 .dout = conform_random(c, nq)};
    for (size_t i = 0; i < nq; i++) in.q[i] *= 4.0f;
    in.wide_q = conform_wide(c, in.q, nq);
    in.wide_key = conform_wide(c, in.key, nkv);
    in.wide_value = conform_wide(c, in.value, nkv);
    in.dq = conform_floats(c, in.q, nq);
    in.dkey = conform_floats(c, in.key, nkv);
    in.dvalue = conform_floats(c, in.value, nkv);
    in.out = conform_poisoned(c, nq, 4);
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
    return in;
}

static void forward_of(conform *c, const kernels_attention *s) {
    inputs in = prepare(c, s);
    attend(&in.reference);
    c->k->attention_forward(c->k, s, in.out, in.lse, in.dq, in.dkey, in.dvalue, in.scratch);
    conform_close(c, "out", conform_fetch_floats(c, in.out, q_floats(s)), in.reference.out,
                  q_floats(s), 3e-6);
    conform_close(c, "lse", conform_fetch_floats(c, in.lse, tokens(s) * s->heads), in.reference.lse,
                  tokens(s) * s->heads, 1e-6);
}

static void backward_of(conform *c, const kernels_attention *s) {
    kernels *k = c->k;
    inputs in = prepare(c, s);
    size_t nq = q_floats(s), nkv = kv_floats(s);
    float *dout = conform_floats(c, in.dout, nq), *dq = conform_poisoned(c, nq, 4);
    float *dkey = conform_poisoned(c, nkv, 4), *dvalue = conform_poisoned(c, nkv, 4);
    k->attention_forward(k, s, in.out, in.lse, in.dq, in.dkey, in.dvalue, in.scratch);
    k->attention_backward(k, s, dq, dkey, dvalue, dout, in.out, in.lse, in.dq, in.dkey, in.dvalue,
                          in.scratch);
    float *got = conform_fetch_floats(c, dq, nq);
    conform_gradient(c, "dq", got, in.wide_q, nq, attend, &in.reference, 2e-5);
    conform_gradient(c, "dkey", conform_fetch_floats(c, dkey, nkv), in.wide_key, nkv, attend,
                     &in.reference, 2e-5);
    conform_gradient(c, "dvalue", conform_fetch_floats(c, dvalue, nkv), in.wide_value, nkv, attend,
                     &in.reference, 2e-5);
    k->attention_backward(k, s, in.dq, dkey, dvalue, dout, in.out, in.lse, in.dq, in.dkey,
                          in.dvalue, in.scratch);
    conform_close(c, "dq over q", conform_fetch_floats(c, in.dq, nq), conform_wide(c, got, nq), nq,
                  0.0);
}

static const kernels_attention shapes[] = {
    {.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
    {.batch = 2, .sequence = 5, .heads = 2, .kv_heads = 1, .head_dim = 6},
    {.batch = 1, .sequence = 131, .heads = 3, .kv_heads = 3, .head_dim = 4},
    {.batch = 2, .sequence = 70, .heads = 4, .kv_heads = 2, .head_dim = 16},
};

void case_attention_forward(conform *c) {
    c->what = "attention_forward";
    for (int causal = 0; causal < 2; causal++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            kernels_attention shape = shapes[i];
            shape.causal = causal;
            forward_of(c, &shape);
        }
        forward_of(c, &(kernels_attention){1, 300, 2, 1, 64, causal});
    }
}

void case_attention_backward(conform *c) {
    c->what = "attention_backward";
    for (int causal = 0; causal < 2; causal++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            kernels_attention shape = shapes[i];
            shape.causal = causal;
            backward_of(c, &shape);
        }
}
