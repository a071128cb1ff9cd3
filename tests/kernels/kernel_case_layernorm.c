/* Conformance: LayerNorm. */
#include <math.h>

#include "kernel_cases.h"

enum { SHAPES = 10, MOST = 2050 };
static const size_t shape_rows[SHAPES] = {1, 3, 40, 7, 2, 150, 19, 9, 3, 3},
                    shape_dim[SHAPES] = {2, 5, 64, 33, 1000, 9, 130, 512, 1026, MOST};
static const float eps = 0.02f;

/* What the gradients are taken of: the sum of dout * out. */
typedef struct norm_loss {
    const double *x, *weight, *bias;
    const float *dout;
    size_t rows, dim;
} norm_loss;

/* out[dim] = the norm of x[dim] */
static void reference(double *out, const double *x, const double *weight, const double *bias,
                      size_t dim, double *mean, double *rstd) {
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < dim; i++) sum += x[i];
    *mean = sum / (double)dim;
    for (size_t i = 0; i < dim; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1.0 / sqrt(squares / (double)dim + (double)eps);
    for (size_t i = 0; i < dim; i++) out[i] = (x[i] - *mean) * *rstd * weight[i] + bias[i];
}

static double loss_of(void *ctx) {
    const norm_loss *l = ctx;
    double loss = 0.0, out[MOST], mean, rstd;
    for (size_t r = 0; r < l->rows; r++) {
        reference(out, l->x + r * l->dim, l->weight, l->bias, l->dim, &mean, &rstd);
        for (size_t i = 0; i < l->dim; i++) loss += (double)l->dout[r * l->dim + i] * out[i];
    }
    return loss;
}

/* `offset`: a mean far from 0, whose square must not swallow the deviations. */
static void forward_of(conform *c, size_t rows, size_t dim, float offset) {
    size_t n = rows * dim;
    float *x = conform_random(c, n), *weight = conform_random(c, dim),
          *bias = conform_random(c, dim);
    for (size_t i = 0; i < n; i++) x[i] += offset;
    double *wide = conform_wide(c, x, n), *want = conform_host(c, n, sizeof *want);
    double *w = conform_wide(c, weight, dim), *b = conform_wide(c, bias, dim);
    double *mean_want = conform_host(c, rows, 8), *rstd_want = conform_host(c, rows, 8);
    for (size_t r = 0; r < rows; r++)
        reference(want + r * dim, wide + r * dim, w, b, dim, &mean_want[r], &rstd_want[r]);
    float *out = conform_poisoned(c, n, 4), *mean = conform_poisoned(c, rows, 4);
    float *rstd = conform_poisoned(c, rows, 4);
    uint16_t *rounded = conform_poisoned(c, n, sizeof *rounded);
    const float *in = conform_floats(c, x, n), *by = conform_floats(c, weight, dim);
    const float *plus = conform_floats(c, bias, dim);
    c->k->layernorm_forward(c->k, rounded, KERNELS_BF16, mean, rstd, in, by, plus, rows, dim, eps);
    c->k->layernorm_forward(c->k, out, KERNELS_F32, mean, rstd, in, by, plus, rows, dim, eps);
    conform_rounded(c, rounded, out, n);
    double tolerance = 1e-6 * (1.0 + (double)offset);
    conform_close(c, "out", conform_fetch_floats(c, out, n), want, n, tolerance);
    conform_close(c, "mean", conform_fetch_floats(c, mean, rows), mean_want, rows, 1e-6);
    conform_close(c, "rstd", conform_fetch_floats(c, rstd, rows), rstd_want, rows, tolerance);
}

void case_layernorm_forward(conform *c) {
    c->what = "layernorm_forward";
    for (size_t i = 0; i < SHAPES; i++) forward_of(c, shape_rows[i], shape_dim[i], 0.0f);
    forward_of(c, 5, 64, 30.0f);
}

static void backward_of(conform *c, size_t rows, size_t dim) {
    kernels *k = c->k;
    size_t n = rows * dim;
    float *x = conform_random(c, n), *weight = conform_random(c, dim),
          *bias = conform_random(c, dim);
    float *dout = conform_random(c, n), *before = conform_random(c, n);
    float *zeros = conform_host(c, n, sizeof *zeros);
    double *wide = conform_wide(c, x, n), *wide_weight = conform_wide(c, weight, dim);
    double *wide_bias = conform_wide(c, bias, dim);
    norm_loss loss = {wide, wide_weight, wide_bias, dout, rows, dim};
    float *in = conform_floats(c, x, n), *w = conform_floats(c, weight, dim);
    float *d = conform_floats(c, dout, n), *out = conform_poisoned(c, n, 4);
    float *mean = conform_poisoned(c, rows, 4), *rstd = conform_poisoned(c, rows, 4);
    float *dx = conform_poisoned(c, n, 4), *dw = conform_floats(c, zeros, dim);
    float *db = conform_floats(c, zeros, dim), *added = conform_floats(c, before, n);
    k->layernorm_forward(k, out, KERNELS_F32, mean, rstd, in, w, conform_floats(c, bias, dim), rows,
                         dim, eps);
    k->layernorm_backward(k, dx, NULL, dw, db, d, in, w, mean, rstd, rows, dim, 0);
    float *got = conform_fetch_floats(c, dx, n), *first = conform_fetch_floats(c, dw, dim);
    conform_gradient(c, "dx", got, wide, n, loss_of, &loss, 3e-5);
    conform_gradient(c, "dweight", first, wide_weight, dim, loss_of, &loss, 2e-5);
    conform_gradient(c, "dbias", conform_fetch_floats(c, db, dim), wide_bias, dim, loss_of, &loss,
                     2e-5);
    double *sum = conform_wide(c, before, n), *same = conform_wide(c, got, n);
    for (size_t i = 0; i < n; i++) sum[i] += same[i];
    uint16_t *rounded = conform_poisoned(c, n, sizeof *rounded);
    k->layernorm_backward(k, added, rounded, dw, db, d, in, w, mean, rstd, rows, dim, KERNELS_ADD);
    conform_rounded(c, rounded, added, n);
    conform_close(c, "dx added", conform_fetch_floats(c, added, n), sum, n, 1e-6);
    double *twice = conform_wide(c, first, dim);
    for (size_t i = 0; i < dim; i++) twice[i] *= 2.0;
    conform_close(c, "dweight added", conform_fetch_floats(c, dw, dim), twice, dim, 1e-5);
    k->layernorm_backward(k, d, NULL, dw, db, d, in, w, mean, rstd, rows, dim, 0);
    conform_close(c, "dx over dout", conform_fetch_floats(c, d, n), same, n, 0.0);
    d = conform_floats(c, dout, n);
    k->layernorm_backward(k, in, NULL, dw, db, d, in, w, mean, rstd, rows, dim, 0);
    conform_close(c, "dx over x", conform_fetch_floats(c, in, n), same, n, 0.0);
}

void case_layernorm_backward(conform *c) {
    c->what = "layernorm_backward";
    for (size_t i = 0; i < SHAPES; i++) backward_of(c, shape_rows[i], shape_dim[i]);
}
