/* With a cache of keys and values a text that comes in pieces gives the logits that the whole text
 * gives: each family, windows that end within the text, and in bf16. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/safetensors.h"
#include "models/model_run.h"

enum { TOKENS = 90, PIECE = 70, MAX_PARAMS = 64, MOST_CLASSES = 512 };
#define OFF 1e-5 /* of the largest logit */
#define BF16_OFF 1e-2

typedef struct cached {
    json_t *config;
    model *m;
    size_t classes, unit_first[8];
    float *param[MAX_PARAMS];
    int32_t ids[TOKENS], targets[TOKENS];
} cached;

/* The text is longer than the golden ones; learned positions and rotary ones are there for it. */
static void set_up(cached *c, const char *family, kernels_type type) {
    char path[4096];
    size_t n = 0;
    dcp_st_reader *weights;
    memset(c, 0, sizeof *c);
    snprintf(path, sizeof path, TEST_DATA "/golden/%s/config.json", family);
    c->config = json_load_file(path, 0, NULL);
    snprintf(path, sizeof path, TEST_DATA "/golden/%s/model.safetensors", family);
    assert_int_equal(dcp_st_open(path, &weights, NULL), DCP_OK);
    json_object_set_new(c->config,
                        json_object_get(c->config, "n_positions") ? "n_positions"
                                                                  : "max_position_embeddings",
                        json_integer(TOKENS));
    assert_int_equal(model_create(c->config, &c->m, NULL), DCP_OK);
    model_set_type(c->m, type);
    for (size_t unit = 0; unit < model_units(c->m); unit++) {
        c->unit_first[unit] = n;
        for (size_t i = 0; i < model_unit_params(c->m, unit); i++) {
            const model_param *p = model_unit_param(c->m, unit, i);
            const dcp_tensor *t = dcp_st_find(weights, p->name);
            const size_t elems = model_param_elems(p), bytes = elems * sizeof(float);
            const size_t there = dcp_tensor_bytes(t);
            float *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
            c->param[n++] = data;
            assert_int_equal(
                dcp_st_read(weights, p->name, 0, there < bytes ? there : bytes, data, NULL),
                DCP_OK);
            for (size_t e = there / sizeof *data; e < elems; e++)
                data[e] = data[e * 31 % (there / sizeof *data)];
        }
    }
    dcp_st_close(weights);
    c->classes = model_sample(c->m, TOKENS).classes;
    assert_true(c->classes <= MOST_CLASSES);
    for (size_t i = 0; i < TOKENS; i++) {
        c->ids[i] = (int32_t)((i * i * 7 + 5 * i + 3) % c->classes);
        c->targets[i] = SAMPLE_IGNORE;
    }
}

static void tear_down(cached *c) {
    for (size_t i = 0; i < MAX_PARAMS; i++) free(c->param[i]);
    model_destroy(c->m);
    json_decref(c->config);
}

static void forward(cached *c, model_run *run) {
    for (size_t stage = 0; stage < model_stages(c->m); stage++)
        model_forward(run, stage,
                      (const float *const *)c->param +
                          c->unit_first[model_stage_unit(c->m, stage)]);
}

/* The logits behind the first `n` tokens, computed at once. */
static void whole(cached *c, size_t n, float *out) {
    model_run *run;
    kernels_type type;
    assert_int_equal(model_run_create(c->m, 1, n, &run, NULL), DCP_OK);
    const sample_batch batch = {.ids = c->ids, .targets = c->targets};
    assert_int_equal(model_run_set_batch(run, &batch, 1.0f, NULL), DCP_OK);
    forward(c, run);
    const float *logits = model_run_logits(run, &type);
    assert_int_equal(type, KERNELS_F32);
    memcpy(out, logits + (n - 1) * c->classes, c->classes * sizeof *out);
    model_run_destroy(run);
}

static void check_pieces(const char *family, kernels_type type, double off) {
    static const size_t pieces[] = {5, 1, 1, 7, PIECE, 1, 3, 2};
    cached c;
    model_run *run;
    kernels_type of;
    float expected[MOST_CLASSES];
    set_up(&c, family, type);
    model_set_checkpointing(c.m, 1);
    assert_int_equal(model_run_create_cached(c.m, PIECE, TOKENS, &run, NULL), DCP_OK);
    for (size_t i = 0, done = 0; i < sizeof pieces / sizeof *pieces; done += pieces[i++]) {
        assert_int_equal(model_run_set_piece(run, c.ids + done, pieces[i], NULL), DCP_OK);
        forward(&c, run);
        const float *got = model_run_logits(run, &of);
        whole(&c, done + pieces[i], expected);
        double largest = 0.0, worst = 0.0;
        for (size_t j = 0; j < c.classes; j++) {
            largest = fmax(largest, fabs((double)expected[j]));
            worst = fmax(worst, fabs((double)got[j] - (double)expected[j]));
        }
        if (!(largest > 0.01 && worst <= off * largest))
            fail_msg("%s: behind %zu tokens logits are off by %.3g of %.3g", family,
                     done + pieces[i], worst, largest);
    }
    model_run_destroy(run);
    tear_down(&c);
}

static void in_fp32(void **state) { check_pieces(*state, KERNELS_F32, OFF); }
static void in_bf16(void **state) { check_pieces(*state, KERNELS_BF16, BF16_OFF); }

static void expect(int status, const dcp_error *err, const char *text) {
    assert_int_equal(status, DCP_ERR_ARG);
    if (!strstr(err->message, text)) fail_msg("%s: not \"%s\"", err->message, text);
}

static void refuses(void **state) {
    cached c;
    model_run *run = NULL;
    dcp_error err;
    set_up(&c, *state, KERNELS_F32);
    expect(model_run_create_cached(c.m, 1, TOKENS + 1, &run, &err), &err,
           "max_position_embeddings");
    expect(model_run_create_cached(c.m, 9, 8, &run, &err), &err, "pieces of 9 tokens");
    expect(model_run_create_cached(c.m, 0, 8, &run, &err), &err, "pieces of 0 tokens");
    assert_int_equal(model_run_create_cached(c.m, 4, 6, &run, NULL), DCP_OK);
    expect(model_run_set_piece(run, c.ids, 0, &err), &err, "0 tokens behind 0");
    expect(model_run_set_piece(run, c.ids, 5, &err), &err, "5 tokens behind 0");
    assert_int_equal(model_run_set_piece(run, c.ids, 4, NULL), DCP_OK);
    expect(model_run_set_piece(run, c.ids, 3, &err), &err, "3 tokens behind 4");
    expect(model_run_set_piece(run, (int32_t[]){(int32_t)c.classes}, 1, &err), &err, "vocabulary");
    model_run_destroy(run);
    tear_down(&c);
}

int main(void) {
    static const char *const families[] = {"gpt2",  "llama",        "qwen2",
                                           "qwen3", "qwen2_window", "mistral"};
    enum { FAMILIES = sizeof families / sizeof *families };
    struct CMUnitTest tests[2 * FAMILIES + 1];
    for (size_t i = 0; i < FAMILIES; i++) {
        tests[2 * i] = (struct CMUnitTest)cmocka_unit_test_prestate(in_fp32, (void *)families[i]);
        tests[2 * i + 1] =
            (struct CMUnitTest)cmocka_unit_test_prestate(in_bf16, (void *)families[i]);
        tests[2 * i].name = tests[2 * i + 1].name = families[i];
    }
    tests[2 * FAMILIES] = (struct CMUnitTest)cmocka_unit_test_prestate(refuses, "llama");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
