/* What a config.json may say: older and newer spellings, defaults, and refusals that name the key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "models/model.h"

#define SIZES                                                                                      \
    "\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":112,\"num_hidden_layers\":2,"     \
    "\"num_attention_heads\":4"

static int create(const char *text, model **out, dcp_error *err) {
    json_t *config = json_loads(text, 0, NULL);
    assert_non_null(config);
    int status = model_create(config, out, err);
    json_decref(config);
    return status;
}

static void assert_refused(const char *text, int status, const char *named) {
    model *m = NULL;
    dcp_error err = {0};
    assert_int_equal(create(text, &m, &err), status);
    assert_null(m);
    assert_int_equal(err.status, status);
    if (!strstr(err.message, named)) fail_msg("\"%s\" does not name %s", err.message, named);
}

static const model_param *param(const model *m, const char *name) {
    for (size_t unit = 0; unit < model_units(m); unit++)
        for (size_t i = 0; i < model_unit_params(m, unit); i++)
            if (!strcmp(model_unit_param(m, unit, i)->name, name))
                return model_unit_param(m, unit, i);
    return NULL;
}

static void older_llama(void **state) {
    (void)state;
    model *m = NULL;
    const char *text = "{\"model_type\":\"llama\"," SIZES
                       ",\"rope_theta\":500000,\"rope_scaling\":null,\"torch_dtype\":\"bfloat16\","
                       "\"bos_token_id\":[1,2],\"pretraining_tp\":1}";
    assert_int_equal(create(text, &m, NULL), DCP_OK);
    assert_int_equal(model_units(m), 3);
    assert_int_equal(model_stages(m), 4);
    assert_int_equal(model_unit_params(m, 0), 3);
    assert_int_equal(model_unit_params(m, 2), 9);
    assert_int_equal(model_max_sequence(m), 2048);
    assert_int_equal(model_stage_unit(m, 3), 0);
    assert_int_equal(param(m, "model.layers.1.self_attn.k_proj.weight")->shape[0], 64);
    assert_int_equal(param(m, "lm_head.weight")->shape[0], 300);
    assert_int_equal(param(m, "model.norm.weight")->init, MODEL_INIT_ONES);
    model_destroy(m);
}

static void newer_qwen3(void **state) {
    (void)state;
    model *m = NULL;
    const char *text =
        "{\"model_type\":\"qwen3\"," SIZES
        ",\"num_key_value_heads\":2,\"tie_word_embeddings\":true,\"use_sliding_window\":false,"
        "\"sliding_window\":4096,\"layer_types\":[\"full_attention\",\"full_attention\"],"
        "\"rope_parameters\":{\"rope_theta\":1e6,\"rope_type\":\"default\"}}";
    assert_int_equal(create(text, &m, NULL), DCP_OK);
    assert_int_equal(model_unit_params(m, 0), 2);
    assert_int_equal(model_unit_params(m, 1), 11);
    assert_int_equal(param(m, "model.layers.0.self_attn.k_proj.weight")->shape[0], 256);
    assert_int_equal(param(m, "model.layers.0.self_attn.q_norm.weight")->shape[0], 128);
    assert_null(param(m, "lm_head.weight"));
    model_destroy(m);
}

static void unsupported(void **state) {
    (void)state;
    const struct {
        const char *member, *named;
    } cases[] = {
        {"\"attention_bias\":true", "attention_bias"},
        {"\"mlp_bias\":true", "mlp_bias"},
        {"\"use_sliding_window\":true", "use_sliding_window"},
        {"\"attention_dropout\":0.1", "attention_dropout"},
        {"\"hidden_act\":\"gelu\"", "hidden_act"},
        {"\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "layer_types"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}", "rope_scaling"},
        {"\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":1e4}", "rope_parameters"},
        {"\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4}}", "rope_parameters"},
        {"\"partial_rotary_factor\":0.5", "partial_rotary_factor"},
        {"\"quantization_config\":{}", "quantization_config"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\":\"llama\"," SIZES ",%s}", cases[i].member);
        assert_refused(text, DCP_ERR_UNSUPPORTED, cases[i].named);
    }
    assert_refused("{\"model_type\":\"gpt2\"}", DCP_ERR_UNSUPPORTED, "gpt2");
}

static void wrong(void **state) {
    (void)state;
    const struct {
        const char *member, *named;
    } cases[] = {
        {"\"num_key_value_heads\":3", "num_key_value_heads"},
        {"\"head_dim\":15", "head_dim"},
        {"\"head_dim\":0", "head_dim"},
        {"\"head_dim\":200000000", "head_dim"},
        {"\"num_hidden_layers\":9223372036854775807", "num_hidden_layers"},
        {"\"num_attention_heads\":3", "num_attention_heads"},
        {"\"vocab_size\":-1", "vocab_size"},
        {"\"hidden_size\":\"64\"", "hidden_size"},
        {"\"intermediate_size\":null", "intermediate_size"},
        {"\"tie_word_embeddings\":1", "tie_word_embeddings"},
        {"\"rms_norm_eps\":\"1e-5\"", "rms_norm_eps"},
        {"\"rms_norm_eps\":-1", "rms_norm_eps"},
        {"\"rope_theta\":0", "rope_theta"},
        {"\"rope_parameters\":7", "rope_parameters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\":\"llama\"," SIZES ",%s}", cases[i].member);
        assert_refused(text, DCP_ERR_ARG, cases[i].named);
    }
    assert_refused("[]", DCP_ERR_ARG, "object");
    assert_refused("{\"hidden_size\":64}", DCP_ERR_ARG, "model_type");
    assert_refused("{\"model_type\":\"llama\"}", DCP_ERR_ARG, "vocab_size");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_llama),
        cmocka_unit_test(newer_qwen3),
        cmocka_unit_test(unsupported),
        cmocka_unit_test(wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
