/* model_packed [BACKEND]: samples that hold several documents give the loss and the gradients of
 * these documents each in a sample of its own: each family, with windows, and in bf16. */
#include <math.h>

#include "golden_model.h"

/* Tokens and documents per sample; then the documents' lengths in two samples. No position of a
 * packed sample but the last is one that the model would have without restarting. */
enum { TOKENS = 90, DOCUMENTS = 9, SAMPLES = 2 };
static const size_t lengths[SAMPLES][DOCUMENTS] = {{31, 1, 20, 9, 17, 2, 3}, {64, 5, 19}};

/* Tolerances, relative to the loss and to a gradient's largest element, for another order of fp32
 * sums. Attention's sums are in another order too, which in bf16 rounds some of its results to the
 * neighbour. */
#define LOSS_OFF 1e-6
#define GRAD_OFF 2e-6
#define BF16_LOSS_OFF 1e-3
#define BF16_GRAD_OFF 2e-2

static const char *backend = "cpu";

/* Samples of one document each, or packed, and how many of their targets count. */
typedef struct given {
    size_t samples, counted;
    int32_t ids[SAMPLES * DOCUMENTS * TOKENS], targets[SAMPLES * DOCUMENTS * TOKENS];
    int32_t places[SAMPLES * DOCUMENTS * TOKENS];
} given;

typedef struct results {
    double loss;
    float *grads[GOLDEN_PARAMS]; /* host */
} results;

/* What is left of the sample does not count. */
static void pad(given *b, size_t from) {
    for (size_t t = from; t < b->samples * TOKENS; t++) {
        b->ids[t] = 0;
        b->targets[t] = SAMPLE_IGNORE;
        b->places[t] = t > from ? b->places[t - 1] + 1 : 0;
    }
}

/* Puts a document at `at`; every fourth token does not count, nor does the last. */
static void put_document(given *b, size_t at, size_t length, size_t number, size_t classes) {
    for (size_t t = 0; t < length; t++) {
        const size_t x = number * 131 + t;
        b->ids[at + t] = (int32_t)((x * x * 7 + 5 * x + 3) % classes);
        b->targets[at + t] =
            t % 4 == 3 ? SAMPLE_IGNORE : (int32_t)(((x + 1) * x * 5 + 11) % classes);
        b->places[at + t] = (int32_t)t;
        b->counted += b->targets[at + t] != SAMPLE_IGNORE;
    }
}

static void fill(given *b, int packed, size_t classes) {
    size_t number = 0;
    memset(b, 0, sizeof *b);
    for (size_t sample = 0; sample < SAMPLES; sample++) {
        size_t at = b->samples * TOKENS;
        if (packed) b->samples++;
        for (size_t i = 0; i < DOCUMENTS && lengths[sample][i]; i++) {
            if (!packed) at = b->samples++ * TOKENS;
            put_document(b, at, lengths[sample][i], number++, classes);
            at += lengths[sample][i];
            if (!packed) pad(b, at);
        }
        if (packed) pad(b, at);
    }
}

static void compute(golden_model *g, const given *b, int packed, results *out) {
    model_run *run;
    kernels *k = g->k;
    float *grads[GOLDEN_PARAMS];
    const sample_batch batch = {
        .ids = (int32_t *)b->ids, .targets = (int32_t *)b->targets, .places = (int32_t *)b->places};
    model_set_packed(g->m, packed);
    assert_int_equal(model_run_create(g->m, b->samples, TOKENS, &run, NULL), DCP_OK);
    for (size_t i = 0; i < g->params; i++) {
        grads[i] = k->alloc(k, g->elems[i] * sizeof(float));
        k->zero(k, grads[i], g->elems[i]);
    }
    assert_int_equal(model_run_set_batch(run, &batch, &(float){1.0f / (float)b->counted}, NULL),
                     DCP_OK);
    golden_model_forward(g, run);
    out->loss = model_run_loss(run);
    golden_model_backward(g, run, grads);
    for (size_t i = 0; i < g->params; i++) {
        out->grads[i] = malloc(g->elems[i] * sizeof(float));
        k->download(k, out->grads[i], grads[i], g->elems[i] * sizeof(float));
        k->free(k, grads[i]);
    }
    model_run_destroy(run);
}

/* Frees both. */
static void compare(const golden_model *g, const char *family, results *got, results *want,
                    double loss_off, double grad_off) {
    if (!(fabs(got->loss - want->loss) <= loss_off * want->loss))
        fail_msg("%s: the loss is %.9g, not %.9g", family, got->loss, want->loss);
    for (size_t i = 0; i < g->params; i++) {
        double largest = 0.0, worst = 0.0;
        for (size_t e = 0; e < g->elems[i]; e++) {
            const double is = got->grads[i][e], was = want->grads[i][e];
            largest = fmax(largest, fabs(was));
            worst = fmax(worst, fabs(is - was));
        }
        /* a bias of keys has a gradient of 0 but for rounding */
        if (largest > 1e-6 && !(worst <= grad_off * largest))
            fail_msg("%s: the gradient of %s is off by %.3g of %.3g", family, g->names[i], worst,
                     largest);
        free(got->grads[i]);
        free(want->grads[i]);
    }
}

static void check(const char *family, kernels_type type, double factor, double loss_off,
                  double grad_off) {
    static given apart, packed;
    golden_model g;
    results want = {0}, got = {0};
    golden_model_open(&g, family, backend, type, TOKENS, factor);
    fill(&apart, 0, g.classes);
    fill(&packed, 1, g.classes);
    assert_int_equal(apart.counted, packed.counted);
    assert_int_equal(packed.samples, SAMPLES);
    compute(&g, &apart, 0, &want);
    compute(&g, &packed, 1, &got);
    compare(&g, family, &got, &want, loss_off, grad_off);
    golden_model_close(&g);
}

static void in_fp32(void **state) { check(*state, KERNELS_F32, 0, LOSS_OFF, GRAD_OFF); }
static void in_bf16(void **state) { check(*state, KERNELS_BF16, 0, BF16_LOSS_OFF, BF16_GRAD_OFF); }

/* Angles of positions that went on would be rounded to other ones. */
static void in_fast_turns(void **state) { check(*state, KERNELS_F32, 1e-4, LOSS_OFF, GRAD_OFF); }

/* Places that are none are refused, since kernels skip keys by them. */
static void refuses(void **state) {
    static given b;
    golden_model g;
    model_run *run;
    dcp_error err;
    golden_model_open(&g, *state, backend, KERNELS_F32, TOKENS, 0);
    model_set_packed(g.m, 1);
    fill(&b, 1, g.classes);
    const sample_batch batch = {.ids = b.ids, .targets = b.targets, .places = b.places};
    assert_int_equal(model_run_create(g.m, SAMPLES, TOKENS, &run, NULL), DCP_OK);
    assert_int_equal(model_run_set_batch(run, &batch, &(float){1.0f}, NULL), DCP_OK);
    b.places[3] = 4;
    assert_int_equal(model_run_set_batch(run, &batch, &(float){1.0f}, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "place 3 of the micro-batch is number 4 of its document"));
    b.places[3] = 3;
    b.places[TOKENS] = b.places[TOKENS - 1] + 1; /* a sample's first */
    assert_int_equal(model_run_set_batch(run, &batch, &(float){1.0f}, &err), DCP_ERR_ARG);
    model_run_destroy(run);
    golden_model_close(&g);
}

int main(int argc, char **argv) {
    static const char *const families[] = {"gpt2",         "llama",   "llama_yarn", "qwen2",
                                           "qwen2_window", "mistral", "qwen3"};
    enum { FAMILIES = sizeof families / sizeof *families };
    struct CMUnitTest tests[2 * FAMILIES + 2];
    if (argc > 1) backend = argv[1];
    golden_family_tests(tests, families, FAMILIES, in_fp32, in_bf16);
    tests[2 * FAMILIES] = (struct CMUnitTest)cmocka_unit_test_prestate(refuses, "llama");
    tests[2 * FAMILIES + 1] =
        (struct CMUnitTest)cmocka_unit_test_prestate(in_fast_turns, "llama_linear");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
