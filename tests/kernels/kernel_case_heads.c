/* Conformance: heads normed and turned, in fp32 and bf16. */
#include <math.h>
#include <stdio.h>

#include "kernel_cases.h"

static const float eps = 0.02f; /* large enough that a single element has a gradient */

/* Heads in fp64, and what the gradients are taken of: the sum of dout * out. */
typedef struct heads {
    kernels_heads h; /* with places of the host */
    const double *x, *weight;
    const float *dout;
    double *out;
} heads;

static size_t elements(const kernels_heads *h) {
    return h->batch * h->sequence * h->heads * h->dim;
}

/* out[i] = the head normed, before it turns */
static void norm_head(const heads *r, double *out, const double *x) {
    const size_t dim = r->h.dim;
    double sum = 0.0;
    for (size_t i = 0; i < dim; i++) sum += x[i] * x[i];
    const double scale = 1.0 / sqrt(sum / (double)dim + (double)eps);
    for (size_t i = 0; i < dim; i++) out[i] = r->weight ? x[i] * scale * r->weight[i] : x[i];
}

static void turn_head(double *x, double position, size_t dim) {
    const size_t half = dim / 2;
    for (size_t i = 0; i < half; i++) {
        const double angle = position * pow(10000.0, -2.0 * (double)i / (double)dim);
        const double low = x[i], high = x[i + half];
        x[i] = low * cos(angle) - high * sin(angle);
        x[i + half] = high * cos(angle) + low * sin(angle);
    }
}

static double loss_of(void *ctx) {
    const heads *r = ctx;
    const size_t dim = r->h.dim;
    double loss = 0.0;
    for (size_t at = 0; at < elements(&r->h); at += dim) {
        norm_head(r, r->out + at, r->x + at);
        const size_t token = at / dim / r->h.heads;
        const size_t row = r->h.places ? (size_t)r->h.places[token] : token % r->h.sequence;
        if (r->h.cosines) turn_head(r->out + at, (double)row, dim);
        for (size_t i = 0; i < dim; i++) loss += (double)r->dout[at + i] * r->out[at + i];
    }
    return loss;
}

/* The angles as kernels have them; NULL for sines. */
static float *table(conform *c, const kernels_heads *h, int sines) {
    const size_t n = h->sequence * (h->dim / 2);
    float *cosine = conform_host(c, n, sizeof *cosine), *sine = conform_host(c, n, sizeof *sine);
    float *frequencies = conform_host(c, h->dim / 2, sizeof *frequencies);
    for (size_t i = 0; i < h->dim / 2; i++)
        frequencies[i] = (float)(1.0 / pow(10000.0, 2.0 * (double)i / (double)h->dim));
    kernels_rope_table(cosine, sine, h->sequence, h->dim / 2, frequencies, 1.0f);
    return conform_floats(c, sines ? sine : cosine, n);
}

/* Places in documents of three tokens; in the next sample, of four. */
static int32_t *places_of(conform *c, const kernels_heads *h) {
    int32_t *places = conform_host(c, h->batch * h->sequence, sizeof *places);
    for (size_t i = 0; i < h->batch * h->sequence; i++)
        places[i] = (int32_t)(i % h->sequence % (3 + i / h->sequence));
    return places;
}

static void check(conform *c, kernels_heads h, int norm, int turn, int place) {
    kernels *k = c->k;
    char text[112];
    const size_t n = elements(&h);
    snprintf(text, sizeof text, "heads %zu x %zu, %zu of %zu%s%s%s", h.batch, h.sequence, h.heads,
             h.dim, norm ? ", normed" : "",
             place  ? ", turned by places"
             : turn ? ", turned"
                    : "",
             h.type == KERNELS_BF16 ? ", bf16" : "");
    c->what = text;
    float *x = conform_random(c, n), *dout = conform_random(c, n);
    float *weight = conform_random(c, h.dim), *start = conform_random(c, h.dim);
    conform_round(x, n, h.type);
    h.eps = eps;
    h.weight = norm ? conform_floats(c, weight, h.dim) : NULL;
    h.cosines = turn ? table(c, &h, 0) : NULL;
    h.sines = turn ? table(c, &h, 1) : NULL;
    double *wide = conform_wide(c, x, n), *wide_weight = conform_wide(c, weight, h.dim);
    h.places = place ? places_of(c, &h) : NULL;
    heads r = {h, wide, norm ? wide_weight : NULL, dout, conform_host(c, n, sizeof(double))};
    const double once = h.type == KERNELS_BF16 ? 0x1p-8 : 0.0; /* rounded */
    loss_of(&r);
    if (place) h.places = conform_given(c, h.places, h.batch * h.sequence, sizeof *h.places);

    void *in = conform_typed(c, x, n, h.type), *out = conform_poisoned_typed(c, n, h.type);
    k->heads_forward(k, &h, out, in);
    const float *got = conform_fetch_typed(c, out, n, h.type);
    conform_close(c, "out", got, r.out, n, 1e-5 + once);
    void *over = conform_typed(c, x, n, h.type);
    k->heads_forward(k, &h, over, over);
    conform_close(c, "out over x", conform_fetch_typed(c, over, n, h.type), conform_wide(c, got, n),
                  n, 0.0);

    float *d = conform_floats(c, dout, n);
    void *dx = conform_poisoned_typed(c, n, h.type);
    float *dweight = conform_floats(c, start, h.dim);
    k->heads_backward(k, &h, dx, dweight, d, in);
    const float *got_dx = conform_fetch_typed(c, dx, n, h.type);
    conform_gradient(c, "dx", got_dx, wide, n, loss_of, &r, 2e-5 + once);
    float *got_dweight = conform_fetch_floats(c, dweight, h.dim);
    for (size_t i = 0; i < h.dim; i++) got_dweight[i] -= start[i];
    if (norm) conform_gradient(c, "dweight", got_dweight, wide_weight, h.dim, loss_of, &r, 2e-5);
    double *same = conform_wide(c, got_dx, n);
    k->heads_backward(k, &h, in, dweight, d, in);
    conform_close(c, "dx over x", conform_fetch_typed(c, in, n, h.type), same, n, 0.0);
    if (h.type == KERNELS_F32) {
        in = conform_floats(c, x, n);
        k->heads_backward(k, &h, d, dweight, d, in);
        conform_close(c, "dx over dout", conform_fetch_floats(c, d, n), same, n, 0.0);
    }
    conform_finish(c);
    c->what = "heads";
}

void case_heads(conform *c) {
    static const kernels_heads shapes[] = {
        {.batch = 1, .sequence = 1, .heads = 1, .dim = 2},
        {.batch = 2, .sequence = 33, .heads = 3, .dim = 16},
        {.batch = 1, .sequence = 70, .heads = 1, .dim = 62},
        {.batch = 1, .sequence = 5, .heads = 2, .dim = 128},
        {.batch = 1, .sequence = 3, .heads = 2, .dim = 200},
        {.batch = 1, .sequence = 20, .heads = 2, .dim = 64},
        {.batch = 1, .sequence = 2, .heads = 2, .dim = 1030},
        {.batch = 1, .sequence = 2, .heads = 2, .dim = 4112},
        {.batch = 1, .sequence = 3, .heads = 2, .dim = 9}, /* odd: it does not turn */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int which = 0; which < 8; which++) {
            kernels_heads h = shapes[i];
            const int turn = (which & 2) && h.dim % 2 == 0;
            h.type = which & 4 ? KERNELS_BF16 : KERNELS_F32;
            check(c, h, which & 1, turn, 0);
            if (turn && h.sequence > 1) check(c, h, which & 1, turn, 1);
        }
}
