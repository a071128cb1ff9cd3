/* With a cache of keys and values a text that comes in pieces gives the logits that the whole text
 * gives: each family, windows that end within the text, and in bf16. */
#include <math.h>

#include "golden_model.h"

enum { TOKENS = 90, PIECE = 70, MOST_CLASSES = 512 };
#define OFF 1e-5 /* of the largest logit */
#define BF16_OFF 1e-2

typedef struct cached {
    golden_model g;
    int32_t ids[TOKENS], targets[TOKENS];
} cached;

/* The text is longer than the golden ones; learned positions and rotary ones are there for it. */
static void set_up(cached *c, const char *family, kernels_type type) {
    golden_model_open(&c->g, family, "cpu", type, TOKENS, 0);
    assert_true(c->g.classes <= MOST_CLASSES);
    for (size_t i = 0; i < TOKENS; i++) {
        c->ids[i] = (int32_t)((i * i * 7 + 5 * i + 3) % c->g.classes);
        c->targets[i] = SAMPLE_IGNORE;
    }
}

/* The logits behind the first `n` tokens, computed at once. */
static void whole(cached *c, size_t n, float *out) {
    model_run *run;
    kernels_type type;
    assert_int_equal(model_run_create(c->g.m, 1, n, &run, NULL), DCP_OK);
    const sample_batch batch = {.ids = c->ids, .targets = c->targets};
    assert_int_equal(model_run_set_batch(run, &batch, &(float){1.0f}, NULL), DCP_OK);
    golden_model_forward(&c->g, run);
    const float *logits = model_run_logits(run, &type);
    assert_int_equal(type, KERNELS_F32);
    memcpy(out, logits + (n - 1) * c->g.classes, c->g.classes * sizeof *out);
    model_run_destroy(run);
}

static void check_pieces(const char *family, kernels_type type, double off) {
    static const size_t pieces[] = {5, 1, 1, 7, PIECE, 1, 3, 2};
    cached c;
    model_run *run;
    kernels_type of;
    float expected[MOST_CLASSES];
    set_up(&c, family, type);
    model_set_checkpointing(c.g.m, 1);
    assert_int_equal(model_run_create_cached(c.g.m, PIECE, TOKENS, &run, NULL), DCP_OK);
    for (size_t i = 0, done = 0; i < sizeof pieces / sizeof *pieces; done += pieces[i++]) {
        assert_int_equal(model_run_set_piece(run, c.ids + done, pieces[i], NULL), DCP_OK);
        golden_model_forward(&c.g, run);
        const float *got = model_run_logits(run, &of);
        whole(&c, done + pieces[i], expected);
        double largest = 0.0, worst = 0.0;
        for (size_t j = 0; j < c.g.classes; j++) {
            largest = fmax(largest, fabs((double)expected[j]));
            worst = fmax(worst, fabs((double)got[j] - (double)expected[j]));
        }
        if (!(largest > 0.01 && worst <= off * largest))
            fail_msg("%s: behind %zu tokens logits are off by %.3g of %.3g", family,
                     done + pieces[i], worst, largest);
    }
    model_run_destroy(run);
    golden_model_close(&c.g);
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
    expect(model_run_create_cached(c.g.m, 1, TOKENS + 1, &run, &err), &err,
           "max_position_embeddings");
    expect(model_run_create_cached(c.g.m, 9, 8, &run, &err), &err, "pieces of 9 tokens");
    expect(model_run_create_cached(c.g.m, 0, 8, &run, &err), &err, "pieces of 0 tokens");
    assert_int_equal(model_run_create_cached(c.g.m, 4, 6, &run, NULL), DCP_OK);
    expect(model_run_set_piece(run, c.ids, 0, &err), &err, "0 tokens after 0");
    expect(model_run_set_piece(run, c.ids, 5, &err), &err, "5 tokens after 0");
    assert_int_equal(model_run_set_piece(run, c.ids, 4, NULL), DCP_OK);
    expect(model_run_set_piece(run, c.ids, 3, &err), &err, "3 tokens after 4");
    expect(model_run_set_piece(run, (int32_t[]){(int32_t)c.g.classes}, 1, &err), &err,
           "vocabulary");
    model_run_destroy(run);
    golden_model_close(&c.g);
}

int main(void) {
    static const char *const families[] = {"gpt2",  "llama",        "qwen2",
                                           "qwen3", "qwen2_window", "mistral"};
    enum { FAMILIES = sizeof families / sizeof *families };
    struct CMUnitTest tests[2 * FAMILIES + 1];
    golden_family_tests(tests, families, FAMILIES, in_fp32, in_bf16);
    tests[2 * FAMILIES] = (struct CMUnitTest)cmocka_unit_test_prestate(refuses, "llama");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
