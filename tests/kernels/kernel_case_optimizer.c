/* Conformance: the updates of optimizers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "kernel_cases.h"

static void reference_adamw(double *p, double *m, double *v, double g, const kernels_update *o) {
    double step = (double)o->step;
    g *= o->grad_scale;
    *p *= 1.0 - o->lr * o->weight_decay;
    *m = o->beta1 * *m + (1.0 - o->beta1) * g;
    *v = o->beta2 * *v + (1.0 - o->beta2) * g * g;
    double m_hat = *m / (1.0 - pow(o->beta1, step)), v_hat = *v / (1.0 - pow(o->beta2, step));
    *p -= o->lr * m_hat / (sqrt(v_hat) + o->eps);
}

static void adamw_of(conform *c, size_t n) {
    kernels *k = c->k;
    kernels_update o = {.rule = KERNELS_ADAMW,
                        .lr = 0.01,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .eps = 1e-8,
                        .weight_decay = 0.1,
                        .grad_scale = 0.5,
                        .step = 1};
    float *param = conform_random(c, n), *zeros = conform_host(c, n, 4);
    double *p = conform_wide(c, param, n), *m = conform_wide(c, zeros, n);
    double *v = conform_wide(c, zeros, n);
    float *state[3] = {conform_floats(c, param, n), conform_floats(c, zeros, n),
                       conform_floats(c, zeros, n)};
    float *cut[3] = {conform_floats(c, param, n), conform_floats(c, zeros, n),
                     conform_floats(c, zeros, n)};
    size_t half = n / 3;
    for (o.step = 1; o.step <= 3; o.step++) {
        float *grad = conform_random(c, n), *g = conform_floats(c, grad, n);
        for (size_t i = 0; i < n; i++) reference_adamw(&p[i], &m[i], &v[i], (double)grad[i], &o);
        k->update(k, &o, state[0], (void *[]){state[1], state[2]}, g, n);
        k->update(k, &o, cut[0], (void *[]){cut[1], cut[2]}, g, half);
        k->update(k, &o, cut[0] + half, (void *[]){cut[1] + half, cut[2] + half}, g + half,
                  n - half);
    }
    const double *want[3] = {p, m, v};
    for (size_t i = 0; i < 3; i++) {
        float *whole = conform_fetch_floats(c, state[i], n);
        conform_close(c, "state", whole, want[i], n, 1e-6);
        assert_memory_equal(whole, conform_fetch_floats(c, cut[i], n), n * sizeof *whole);
    }
}

void case_adamw(conform *c) {
    c->what = "adamw";
    adamw_of(c, 1);
    adamw_of(c, 35);
    adamw_of(c, 2000);
}

static void reference_sgd(double *p, double *b, double g, const kernels_update *o) {
    g = g * o->grad_scale + o->weight_decay * *p;
    if (o->step == 1 || o->momentum == 0)
        *b = g;
    else
        *b = o->momentum * *b + (1.0 - o->dampening) * g;
    *p -= o->lr * (o->nesterov ? g + o->momentum * *b : *b);
}

/* Beside the formula in fp64, and the same bits however it is cut. */
static void sgd_of(conform *c, size_t n, kernels_update o) {
    kernels *k = c->k;
    float *param = conform_random(c, n), *zeros = conform_host(c, n, 4);
    double *p = conform_wide(c, param, n), *b = conform_wide(c, zeros, n);
    float *state[2] = {conform_floats(c, param, n), conform_floats(c, zeros, n)};
    float *cut[2] = {conform_floats(c, param, n), conform_floats(c, zeros, n)};
    size_t half = n / 3;
    for (o.step = 1; o.step <= 3; o.step++) {
        float *grad = conform_random(c, n), *g = conform_floats(c, grad, n);
        for (size_t i = 0; i < n; i++) reference_sgd(&p[i], &b[i], (double)grad[i], &o);
        k->update(k, &o, state[0], (void *[]){state[1], NULL}, g, n);
        k->update(k, &o, cut[0], (void *[]){cut[1], NULL}, g, half);
        k->update(k, &o, cut[0] + half, (void *[]){cut[1] + half, NULL}, g + half, n - half);
    }
    const double *want[2] = {p, b};
    for (size_t i = 0; i < 2; i++) {
        float *whole = conform_fetch_floats(c, state[i], n);
        conform_close(c, "state", whole, want[i], n, 1e-6);
        assert_memory_equal(whole, conform_fetch_floats(c, cut[i], n), n * sizeof *whole);
    }
}

/* What torch.optim.SGD of PyTorch 2.15.0 makes of sgd_number(i, 0) in four steps with gradients
 * sgd_number(i, step) / 2. It keeps no buffer without momentum. */
enum { SGD_ELEMS = 7, SGD_STEPS = 4 };
static float sgd_number(int i, int step) { return (float)((5 * i + 11 * step) % 16 - 8) / 16; }
static const struct {
    double lr, momentum, dampening, weight_decay;
    int nesterov;
    double param[SGD_ELEMS], buffer[SGD_ELEMS];
} sgd_golden[] = {
    {0.5, 0, 0, 0, 0, {-0.46875, 0.03125, 0.28125, 0.53125, -0.21875, 0.03125, 0.28125}, {0}},
    {0.125,
     0.9,
     0,
     0,
     0,
     {-0.482800752, -0.0696015656, 0.23553516, 0.490046859, -0.311691433, 0.0390078165,
      0.344144523},
     {-0.0541562587, -0.38131249, -0.24896872, -0.161624998, -0.124281272, 0.0485624969,
      0.180906251}},
    {0.25,
     0.9,
     0.25,
     0,
     0,
     {-0.494351566, 0.0430820286, 0.31095311, 0.502886713, -0.389554679, 0.0541289076, 0.321999967},
     {-0.0235312507, -0.331546873, -0.20381248, -0.109828129, -0.0533437729, 0.0136406273,
      0.141375005}},
    {0.1,
     0.8,
     0,
     0.01,
     0,
     {-0.481428653, -0.102091737, 0.201870918, 0.473963529, -0.285714567, 0.0436223447,
      0.347584993},
     {-0.0567615852, -0.341322064, -0.190840796, -0.121159084, -0.181416184, 0.034023352,
      0.184504598}},
    {0.1,
     0.9,
     0,
     0.05,
     1,
     {-0.451198667, -0.0498029925, 0.226288229, 0.467592865, -0.270832926, 0.0355627201,
      0.311653972},
     {-0.138416126, -0.405196071, -0.219844729, -0.0857482776, -0.174938977, 0.0582810864,
      0.243632436}},
    {0.2,
     0,
     0.5,
     0.1,
     0,
     {-0.448951453, -0.087891914, 0.175088376, 0.440028667, -0.215399176, 0.0456603058,
      0.308640629},
     {0}},
};

static void sgd_as_torch(conform *c) {
    for (size_t way = 0; way < sizeof sgd_golden / sizeof *sgd_golden; way++) {
        kernels_update o = {.rule = KERNELS_SGD,
                            .lr = sgd_golden[way].lr,
                            .momentum = sgd_golden[way].momentum,
                            .dampening = sgd_golden[way].dampening,
                            .weight_decay = sgd_golden[way].weight_decay,
                            .nesterov = sgd_golden[way].nesterov,
                            .grad_scale = 0.5};
        float *host = conform_host(c, SGD_ELEMS, sizeof *host);
        float *buffer = conform_floats(c, host, SGD_ELEMS);
        for (int i = 0; i < SGD_ELEMS; i++) host[i] = sgd_number(i, 0);
        float *param = conform_floats(c, host, SGD_ELEMS);
        for (o.step = 1; o.step <= SGD_STEPS; o.step++) {
            for (int i = 0; i < SGD_ELEMS; i++) host[i] = sgd_number(i, (int)o.step);
            const float *grad = conform_floats(c, host, SGD_ELEMS);
            c->k->update(c->k, &o, param, (void *[]){buffer, NULL}, grad, SGD_ELEMS);
        }
        conform_close(c, "param", conform_fetch_floats(c, param, SGD_ELEMS), sgd_golden[way].param,
                      SGD_ELEMS, 1e-6);
        if (o.momentum > 0)
            conform_close(c, "buffer", conform_fetch_floats(c, buffer, SGD_ELEMS),
                          sgd_golden[way].buffer, SGD_ELEMS, 1e-6);
    }
}

void case_sgd(conform *c) {
    const kernels_update plain = {.rule = KERNELS_SGD, .lr = 0.1, .grad_scale = 0.5};
    kernels_update o = plain;
    c->what = "sgd";
    sgd_of(c, 35, o);
    o.momentum = 0.9, o.dampening = 0.1, o.weight_decay = 0.01;
    sgd_of(c, 1, o);
    sgd_of(c, 2000, o);
    o.dampening = 0, o.nesterov = 1;
    sgd_of(c, 2000, o);
    sgd_as_torch(c);
}
