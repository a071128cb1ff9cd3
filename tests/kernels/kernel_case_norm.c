/* Conformance: RMSNorm. */
#include <math.h>

#include "kernel_cases.h"

enum { SHAPES = 12 };
static const size_t norm_rows[SHAPES] = {1, 3, 40, 7, 2, 150, 21, 18, 9, 3, 4, 3},
                    norm_dim[SHAPES] = {1, 5, 64, 33, 1000, 9, 128, 130, 512, 1026, 2052, 5000};
static const float eps = 0.02f; /* large enough that a single element has a gradient */

/* What the gradients are taken of: the sum of dout * out. */
typedef struct norm_loss {
    const double *x, *weight;
    const float *dout;
    size_t rows, dim;
} norm_loss;

static double norm_scale(const double *x, size_t dim) {
    double sum = 0.0;
    for (size_t i = 0; i < dim; i++) sum += x[i] * x[i];
    return 1.0 / sqrt(sum / (double)dim + (double)eps);
}

static double loss_of_norm(void *ctx) {
    const norm_loss *l = ctx;
    double loss = 0.0;
    for (size_t r = 0; r < l->rows; r++) {
        const double *x = l->x + r * l->dim, scale = norm_scale(x, l->dim);
        for (size_t i = 0; i < l->dim; i++)
            loss += (double)l->dout[r * l->dim + i] * l->weight[i] * x[i] * scale;
    }
    return loss;
}

static void norm_forward_of(conform *c, size_t rows, size_t dim) {
    size_t n = rows * dim;
    float *x = conform_random(c, n), *weight = conform_random(c, dim);
    double *want = conform_wide(c, x, n), *rstd_want = conform_host(c, rows, sizeof(double));
    for (size_t r = 0; r < rows; r++) {
        rstd_want[r] = norm_scale(want + r * dim, dim);
        for (size_t i = 0; i < dim; i++) want[r * dim + i] *= rstd_want[r] * (double)weight[i];
    }
    float *out = conform_poisoned(c, n, 4), *rstd = conform_poisoned(c, rows, 4);
    uint16_t *rounded = conform_poisoned(c, n, sizeof *rounded);
    const float *in = conform_floats(c, x, n), *by = conform_floats(c, weight, dim);
    c->k->rmsnorm_forward(c->k, rounded, KERNELS_BF16, rstd, in, by, rows, dim, eps);
    c->k->rmsnorm_forward(c->k, out, KERNELS_F32, rstd, in, by, rows, dim, eps);
    conform_rounded(c, rounded, out, n);
    conform_close(c, "out", conform_fetch_floats(c, out, n), want, n, 1e-6);
    conform_close(c, "rstd", conform_fetch_floats(c, rstd, rows), rstd_want, rows, 1e-6);
}

void case_norm_forward(conform *c) {
    c->what = "rmsnorm_forward";
    for (size_t i = 0; i < SHAPES; i++) norm_forward_of(c, norm_rows[i], norm_dim[i]);
}

static void norm_backward_of(conform *c, size_t rows, size_t dim) {
    kernels *k = c->k;
    size_t n = rows * dim;
    float *x = conform_random(c, n), *weight = conform_random(c, dim), *dout = conform_random(c, n);
    float *before = conform_random(c, n), *zeros = conform_host(c, n, sizeof *zeros);
    double *wide = conform_wide(c, x, n), *wide_weight = conform_wide(c, weight, dim);
    norm_loss loss = {wide, wide_weight, dout, rows, dim};
    float *dx_x = conform_floats(c, x, n), *w = conform_floats(c, weight, dim);
    float *d = conform_floats(c, dout, n), *out = conform_poisoned(c, n, 4);
    float *rstd = conform_poisoned(c, rows, 4), *dx = conform_poisoned(c, n, 4);
    float *dw = conform_floats(c, zeros, dim), *added = conform_floats(c, before, n);
    k->rmsnorm_forward(k, out, KERNELS_F32, rstd, dx_x, w, rows, dim, eps);
    k->rmsnorm_backward(k, dx, NULL, dw, d, dx_x, w, rstd, rows, dim, 0);
    float *got = conform_fetch_floats(c, dx, n);
    conform_gradient(c, "dx", got, wide, n, loss_of_norm, &loss, 2e-5);
    conform_gradient(c, "dweight", conform_fetch_floats(c, dw, dim), wide_weight, dim, loss_of_norm,
                     &loss, 2e-5);
    double *sum = conform_wide(c, before, n), *same = conform_wide(c, got, n);
    for (size_t i = 0; i < n; i++) sum[i] += same[i];
    uint16_t *rounded = conform_poisoned(c, n, sizeof *rounded);
    k->rmsnorm_backward(k, added, rounded, dw, d, dx_x, w, rstd, rows, dim, KERNELS_ADD);
    conform_rounded(c, rounded, added, n);
    conform_close(c, "dx added", conform_fetch_floats(c, added, n), sum, n, 1e-6);
    k->rmsnorm_backward(k, d, NULL, dw, d, dx_x, w, rstd, rows, dim, 0);
    conform_close(c, "dx over dout", conform_fetch_floats(c, d, n), same, n, 0.0);
}

void case_norm_backward(conform *c) {
    c->what = "rmsnorm_backward";
    for (size_t i = 0; i < SHAPES; i++) norm_backward_of(c, norm_rows[i], norm_dim[i]);
}
