/* Conformance: activations, alone and as gates. */
#include <math.h>
#include <stdio.h>

#include "kernel_cases.h"

enum { ACTIVATIONS = 4 };

static double reference(kernels_activation f, double x) {
    const double pi = 3.14159265358979323846;
    switch (f) {
    case KERNELS_RELU:
        return fmax(x, 0.0);
    case KERNELS_GELU:
        return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case KERNELS_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / pi) * (x + 0.044715 * x * x * x)));
    default:
        return x / (1.0 + exp(-x));
    }
}

typedef struct gated_loss {
    const double *gate, *up; /* up NULL: no gate */
    const float *dout;
    size_t n;
    kernels_activation f;
} gated_loss;

static double loss_of(void *ctx) {
    const gated_loss *l = ctx;
    double loss = 0.0;
    for (size_t i = 0; i < l->n; i++)
        loss += (double)l->dout[i] * reference(l->f, l->gate[i]) * (l->up ? l->up[i] : 1.0);
    return loss;
}

/* Values around 0, of many also some far outside exp's range; never within a difference of 0, where
 * relu has no gradient. */
static float *spread(conform *c, size_t n) {
    float *x = conform_random(c, n);
    for (size_t i = 0; i < n; i++) {
        x[i] *= n > 100 && i % 7 == 0 ? 200.0f : 6.0f;
        if (fabsf(x[i]) < 1e-3f) x[i] = 0.5f;
    }
    return x;
}

static void activation_of(conform *c, size_t n, kernels_activation f) {
    kernels *k = c->k;
    float *x = spread(c, n), *dout = conform_random(c, n);
    double *wide = conform_wide(c, x, n), *want = conform_host(c, n, sizeof *want);
    for (size_t i = 0; i < n; i++) want[i] = reference(f, wide[i]);
    gated_loss loss = {wide, NULL, dout, n, f};
    float *in = conform_floats(c, x, n), *d = conform_floats(c, dout, n);
    float *out = conform_poisoned(c, n, 4), *dx = conform_poisoned(c, n, 4);
    k->activation_forward(k, out, in, n, f, KERNELS_F32);
    float *value = conform_fetch_floats(c, out, n);
    conform_close(c, "out", value, want, n, 1e-6);
    k->activation_backward(k, NULL, dx, d, in, n, f, KERNELS_F32);
    float *gradient = conform_fetch_floats(c, dx, n);
    conform_gradient(c, "dx", gradient, wide, n, loss_of, &loss, 2e-5);
    k->activation_backward(k, NULL, d, d, in, n, f, KERNELS_F32);
    conform_close(c, "dx over dout", conform_fetch_floats(c, d, n), conform_wide(c, gradient, n), n,
                  0.0);
    d = conform_floats(c, dout, n);
    float *over = conform_floats(c, x, n);
    k->activation_backward(k, d, over, d, over, n, f, KERNELS_F32);
    conform_close(c, "dx over x", conform_fetch_floats(c, over, n), conform_wide(c, gradient, n), n,
                  0.0);
    conform_close(c, "out again, over dout", conform_fetch_floats(c, d, n),
                  conform_wide(c, value, n), n, 0.0);
    k->activation_forward(k, in, in, n, f, KERNELS_F32);
    conform_close(c, "out over x", conform_fetch_floats(c, in, n), conform_wide(c, value, n), n,
                  0.0);
}

static void gated_of(conform *c, size_t n, kernels_activation f) {
    kernels *k = c->k;
    float *gate = spread(c, n), *up = conform_random(c, n), *dout = conform_random(c, n);
    double *wide_gate = conform_wide(c, gate, n), *wide_up = conform_wide(c, up, n);
    double *want = conform_host(c, n, sizeof *want);
    for (size_t i = 0; i < n; i++) want[i] = reference(f, wide_gate[i]) * wide_up[i];
    gated_loss loss = {wide_gate, wide_up, dout, n, f};
    float *g = conform_floats(c, gate, n), *u = conform_floats(c, up, n);
    float *d = conform_floats(c, dout, n), *out = conform_poisoned(c, n, 4);
    float *dg = conform_poisoned(c, n, 4), *du = conform_poisoned(c, n, 4);
    float *again = conform_poisoned(c, n, 4);
    k->gated_forward(k, out, g, u, n, f, KERNELS_F32);
    float *value = conform_fetch_floats(c, out, n);
    conform_close(c, "out", value, want, n, 1e-6);
    k->gated_backward(k, again, dg, du, d, g, u, n, f, KERNELS_F32);
    conform_close(c, "out again", conform_fetch_floats(c, again, n), conform_wide(c, value, n), n,
                  0.0);
    float *dgate = conform_fetch_floats(c, dg, n), *dup = conform_fetch_floats(c, du, n);
    conform_gradient(c, "dgate", dgate, wide_gate, n, loss_of, &loss, 2e-5);
    conform_gradient(c, "dup", dup, wide_up, n, loss_of, &loss, 2e-5);
    k->gated_backward(k, d, g, u, d, g, u, n, f, KERNELS_F32);
    conform_close(c, "out over dout", conform_fetch_floats(c, d, n), conform_wide(c, value, n), n,
                  0.0);
    conform_close(c, "dgate over gate", conform_fetch_floats(c, g, n), conform_wide(c, dgate, n), n,
                  0.0);
    conform_close(c, "dup over up", conform_fetch_floats(c, u, n), conform_wide(c, dup, n), n, 0.0);
}

static const size_t sizes[] = {1, 16, 37, 1003};

static void each(conform *c, const char *name,
                 void (*run)(conform *c, size_t n, kernels_activation f)) {
    for (int f = 0; f < ACTIVATIONS; f++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char what[64];
            snprintf(what, sizeof what, "%s %d of %zu", name, f, sizes[i]);
            c->what = what;
            run(c, sizes[i], (kernels_activation)f);
            conform_finish(c);
            c->what = name;
        }
}

void case_activation(conform *c) { each(c, "activation", activation_of); }
void case_gated(conform *c) { each(c, "gated", gated_of); }
