/* A leaf's bits depend on its samples and the parameters alone, in every family: not on what ran
 * before in the same memory, nor on where the parameters lie. Tokens outside the vocabulary and
 * shapes that the model cannot take are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/model_run.h"

enum { BATCH = 2, SEQUENCE = 70, TOKENS = BATCH * SEQUENCE, MAX_PARAMS = 32, VALUES = 2 * 10 * 9 };

#define DECODER                                                                                    \
    "\"vocab_size\":50,\"hidden_size\":24,\"num_hidden_layers\":1,\"num_attention_heads\":4,"      \
    "\"max_position_embeddings\":128"
#define GATED                                                                                      \
    ",\"intermediate_size\":40,\"num_key_value_heads\":2,\"head_dim\":6,\"attention_bias\":true"

static const char qwen3[] =
    "{\"model_type\":\"qwen3\"," DECODER GATED ",\"tie_word_embeddings\":true}";
static const char *const configs[] = {
    qwen3,
    "{\"model_type\":\"llama\"," DECODER GATED ",\"mlp_bias\":true}",
    "{\"model_type\":\"gpt2\"," DECODER "}",
    "{\"model_type\":\"vit\",\"hidden_size\":24,\"intermediate_size\":40,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"num_channels\":2,\"image_size\":[10,9],\"patch_size\":2,"
    "\"num_labels\":50}",
    "{\"model_type\":\"mlp\",\"sizes\":[180,33,50]}",
};

typedef struct leaf {
    model *m;
    model_run *run;
    size_t elems, root;
    float *params, *grads; /* all of the model's, back to back */
    float *param[MAX_PARAMS], *grad[MAX_PARAMS];
    int32_t ids[TOKENS], targets[TOKENS];
    float values[BATCH * VALUES];
    sample_batch batch;
} leaf;

static size_t place_params(leaf *l, float *params, float *grads) {
    size_t n = 0, at = 0;
    for (size_t unit = 0; unit < model_units(l->m); unit++)
        for (size_t i = 0; i < model_unit_params(l->m, unit); i++, n++) {
            const model_param *p = model_unit_param(l->m, unit, i);
            l->param[n] = params ? params + at : NULL;
            l->grad[n] = grads ? grads + at : NULL;
            size_t elems = 1;
            for (uint32_t d = 0; d < p->ndim; d++) elems *= p->shape[d];
            at += elems;
        }
    return at;
}

static void set_up(leaf *l, const char *config_text) {
    json_t *config = json_loads(config_text, 0, NULL);
    assert_int_equal(model_create(config, &l->m, NULL), DCP_OK);
    json_decref(config);
    assert_int_equal(model_run_create(l->m, BATCH, SEQUENCE, &l->run, NULL), DCP_OK);
    l->root = model_unit_params(l->m, 0);
    l->batch = (sample_batch){.ids = l->ids, .values = l->values, .targets = l->targets};
    l->elems = place_params(l, NULL, NULL);
    l->params = calloc(l->elems + 1, sizeof *l->params);
    l->grads = calloc(l->elems + 1, sizeof *l->grads);
    for (size_t i = 0; i < l->elems; i++)
        l->params[i] = (float)(i * 2654435761u % 1000u) * 0.001f - 0.5f;
    for (size_t i = 0; i < TOKENS; i++) {
        l->ids[i] = (int32_t)(i * 7 % 50);
        l->targets[i] = i % 5 ? (int32_t)(i * 11 % 50) : -100;
    }
    for (size_t i = 0; i < (size_t)BATCH * VALUES; i++)
        l->values[i] = (float)(i * 40503u % 1000u) * 0.002f - 1.0f;
}

static void tear_down(leaf *l) {
    model_run_destroy(l->run);
    model_destroy(l->m);
    free(l->params);
    free(l->grads);
}

static double compute(leaf *l) {
    const float *const *param = (const float *const *)l->param;
    size_t stages = model_stages(l->m);
    memset(l->grads, 0, (l->elems + 1) * sizeof *l->grads);
    for (size_t s = 0; s < stages; s++)
        model_forward(l->run, s, param + (model_stage_unit(l->m, s) ? l->root : 0));
    double loss = model_run_loss(l->run);
    for (size_t s = stages; s-- > 0;) {
        size_t first = model_stage_unit(l->m, s) ? l->root : 0;
        model_backward(l->run, s, param + first, l->grad + first);
    }
    return loss;
}

static void check_family(const char *config_text) {
    leaf l = {0};
    set_up(&l, config_text);
    place_params(&l, l.params, l.grads);
    assert_int_equal(model_run_set_batch(l.run, &l.batch, &(float){0.01f}, NULL), DCP_OK);
    double loss = compute(&l);
    float *first = malloc(l.elems * sizeof *first);
    memcpy(first, l.grads, l.elems * sizeof *first);
    assert_int_equal(model_run_set_batch(
                         l.run, &(sample_batch){.ids = l.ids, .values = l.values, .targets = l.ids},
                         &(float){3.0f}, NULL),
                     DCP_OK);
    assert_true(compute(&l) != loss);
    memmove(l.params + 1, l.params, l.elems * sizeof *l.params);
    place_params(&l, l.params + 1, l.grads + 1);
    assert_int_equal(model_run_set_batch(l.run, &l.batch, &(float){0.01f}, NULL), DCP_OK);
    assert_true(compute(&l) == loss);
    assert_memory_equal(first, l.grads + 1, l.elems * sizeof *first);
    free(first);
    tear_down(&l);
}

static void same_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) check_family(configs[i]);
}

static void refusals(void **state) {
    (void)state;
    leaf l = {0};
    model_run *run = NULL;
    set_up(&l, qwen3);
    l.ids[9] = 50;
    assert_int_equal(model_run_set_batch(l.run, &l.batch, &(float){1.0f}, NULL), DCP_ERR_ARG);
    l.ids[9] = 0;
    l.targets[3] = -1;
    assert_int_equal(model_run_set_batch(l.run, &l.batch, &(float){1.0f}, NULL), DCP_ERR_ARG);
    assert_int_equal(model_run_create(l.m, 1, 129, &run, NULL), DCP_ERR_ARG);
    assert_int_equal(model_run_create(l.m, 0, 8, &run, NULL), DCP_ERR_ARG);
    assert_int_equal(model_run_create(l.m, UINT64_MAX, 8, &run, NULL), DCP_ERR_ARG);
    assert_null(run);
    tear_down(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
