/* The plain MLP: names and shapes as torch.nn.Linear's, loss and gradients as a naive fp64
 * computation gives them, for several depths and activations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/model_run.h"

enum { BATCH = 5, MAX_WIDTH = 16, MAX_LAYERS = 4, MAX_PARAMS = 2 * MAX_LAYERS };

typedef struct mlp {
    model *m;
    model_run *run;
    int gelu;
    size_t layers, sizes[MAX_LAYERS + 1];
    float *param[MAX_PARAMS], *grad[MAX_PARAMS]; /* weight and bias of each layer */
    double *wide[MAX_PARAMS];
    size_t elems[MAX_PARAMS];
    float values[BATCH * MAX_WIDTH];
    int32_t targets[BATCH];
    sample_batch batch;
} mlp;

static double activate(const mlp *t, double x) {
    return t->gelu ? 0.5 * x * (1.0 + erf(x / sqrt(2.0))) : fmax(x, 0.0);
}

static double loss_of_sample(const mlp *t, const float *values, int32_t target) {
    double x[MAX_WIDTH], y[MAX_WIDTH], sum = 0.0;
    for (size_t i = 0; i < t->sizes[0]; i++) x[i] = (double)values[i];
    for (size_t l = 0; l < t->layers; l++) {
        for (size_t o = 0; o < t->sizes[l + 1]; o++) {
            y[o] = t->wide[2 * l + 1][o];
            for (size_t i = 0; i < t->sizes[l]; i++)
                y[o] += t->wide[2 * l][o * t->sizes[l] + i] * x[i];
        }
        for (size_t o = 0; o < t->sizes[l + 1]; o++)
            x[o] = l + 1 < t->layers ? activate(t, y[o]) : y[o];
    }
    for (size_t i = 0; i < t->sizes[t->layers]; i++) sum += exp(x[i]);
    return log(sum) - x[target];
}

/* The mean over the samples that count: all but the one that is ignored. */
static double reference(const mlp *t) {
    double loss = 0.0;
    for (size_t s = 0; s < BATCH; s++)
        if (t->targets[s] != SAMPLE_IGNORE)
            loss += loss_of_sample(t, t->values + s * t->sizes[0], t->targets[s]);
    return loss / (BATCH - 1);
}

static float noise(size_t i) { return (float)(i * 2654435761u % 2000u) * 0.0005f - 0.5f; }

/* A layer's parameters: the last layer is in the root, unit 0. */
static void take_layer(mlp *t, size_t layer) {
    size_t unit = layer + 1 < t->layers ? layer + 1 : 0;
    assert_int_equal(model_unit_params(t->m, unit), 2);
    for (size_t i = 0; i < 2; i++) {
        const model_param *p = model_unit_param(t->m, unit, i);
        char name[64];
        snprintf(name, sizeof name, "layers.%zu.%s", layer, i ? "bias" : "weight");
        assert_string_equal(p->name, name);
        assert_int_equal(p->ndim, i ? 1 : 2);
        assert_int_equal(p->shape[0], t->sizes[layer + 1]);
        if (!i) assert_int_equal(p->shape[1], t->sizes[layer]);
        size_t at = 2 * layer + i, n = t->sizes[layer + 1] * (i ? 1 : t->sizes[layer]);
        t->elems[at] = n;
        t->param[at] = malloc(n * sizeof(float));
        t->grad[at] = calloc(n, sizeof(float));
        t->wide[at] = malloc(n * sizeof(double));
        for (size_t e = 0; e < n; e++) {
            t->param[at][e] = noise(e + 100 * at + 1);
            t->wide[at][e] = (double)t->param[at][e];
        }
    }
}

static void set_up(mlp *t, const char *text) {
    json_t *config = json_loads(text, 0, NULL), *sizes = json_object_get(config, "sizes");
    assert_int_equal(model_create(config, &t->m, NULL), DCP_OK);
    t->layers = json_array_size(sizes) - 1;
    for (size_t i = 0; i <= t->layers; i++)
        t->sizes[i] = (size_t)json_integer_value(json_array_get(sizes, i));
    t->gelu = json_object_get(config, "activation") != NULL;
    json_decref(config);
    assert_int_equal(model_units(t->m), t->layers);
    for (size_t layer = 0; layer < t->layers; layer++) take_layer(t, layer);
    for (size_t i = 0; i < BATCH * t->sizes[0]; i++) t->values[i] = 3.0f * noise(7 * i + 3);
    for (size_t s = 0; s < BATCH; s++)
        t->targets[s] = s == 2 ? SAMPLE_IGNORE : (int32_t)(s % t->sizes[t->layers]);
    t->batch = (sample_batch){.values = t->values, .targets = t->targets};
    sample_shape shape = model_sample(t->m, 256);
    assert_int_equal(model_sample_values(&shape), t->sizes[0]);
    assert_int_equal(shape.targets, 1);
    assert_int_equal(model_run_create(t->m, BATCH, 256, &t->run, NULL), DCP_OK);
}

static void tear_down(mlp *t) {
    for (size_t i = 0; i < 2 * t->layers; i++) {
        free(t->param[i]);
        free(t->grad[i]);
        free(t->wide[i]);
    }
    model_run_destroy(t->run);
    model_destroy(t->m);
}

static size_t first_of(const mlp *t, size_t stage) {
    size_t unit = model_stage_unit(t->m, stage);
    return 2 * (unit ? unit - 1 : t->layers - 1);
}

static void compute(mlp *t) {
    size_t stages = model_stages(t->m);
    assert_int_equal(model_run_set_batch(t->run, &t->batch, &(float){1.0f / (BATCH - 1)}, NULL),
                     DCP_OK);
    for (size_t s = 0; s < stages; s++)
        model_forward(t->run, s, (const float *const *)t->param + first_of(t, s));
    for (size_t s = stages; s-- > 0;)
        model_backward(t->run, s, (const float *const *)t->param + first_of(t, s),
                       t->grad + first_of(t, s));
}

static void check_gradient(mlp *t, size_t at) {
    const double h = 1e-5;
    for (size_t e = 0; e < t->elems[at]; e++) {
        double start = t->wide[at][e];
        t->wide[at][e] = start + h;
        double above = reference(t);
        t->wide[at][e] = start - h;
        double want = (above - reference(t)) / (2 * h);
        t->wide[at][e] = start;
        if (!(fabs((double)t->grad[at][e] - want) < 2e-6)) /* fp32's roundings of values near 1 */
            fail_msg("gradient %zu[%zu] is %.9g, by differences %.9g", at, e,
                     (double)t->grad[at][e], want);
    }
}

static void agrees(void **state) {
    (void)state;
    static const char *const configs[] = {
        "{\"model_type\":\"mlp\",\"sizes\":[5,3]}",
        "{\"model_type\":\"mlp\",\"sizes\":[5,7,3]}",
        "{\"model_type\":\"mlp\",\"sizes\":[3,16,4,9,6]}",
        "{\"model_type\":\"mlp\",\"sizes\":[16,4,8],\"activation\":\"gelu\"}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        mlp t = {0};
        set_up(&t, configs[i]);
        compute(&t);
        double want = reference(&t);
        if (!(fabs(model_run_loss(t.run) - want) < 1e-6)) /* likewise */
            fail_msg("%s: loss %.9g instead of %.9g", configs[i], model_run_loss(t.run), want);
        for (size_t at = 0; at < 2 * t.layers; at++) check_gradient(&t, at);
        tear_down(&t);
    }
}

static void refusals(void **state) {
    (void)state;
    mlp t = {0};
    set_up(&t, "{\"model_type\":\"mlp\",\"sizes\":[5,7,3]}");
    t.targets[1] = 3;
    assert_int_equal(model_run_set_batch(t.run, &t.batch, &(float){1.0f}, NULL), DCP_ERR_ARG);
    t.targets[1] = -1;
    assert_int_equal(model_run_set_batch(t.run, &t.batch, &(float){1.0f}, NULL), DCP_ERR_ARG);
    tear_down(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
