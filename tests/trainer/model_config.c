/* What a config.json may say: older and newer spellings, defaults, and refusals that name the key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "models/families.h"
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

/* Biases of queries, keys and values, whatever attention_bias says; 32 heads of keys where none are
 * told, and as many as of queries where they are null. */
static void qwen2(void **state) {
    (void)state;
    model *m = NULL;
    static const char *const texts[] = {
        "{\"model_type\":\"qwen2\"," SIZES ",\"num_key_value_heads\":null,"
        "\"use_sliding_window\":false,\"sliding_window\":32768,\"max_window_layers\":2}",
        "{\"model_type\":\"qwen2\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":112,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":64,\"attention_bias\":false,\"head_dim\":"
        "2}",
    };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(create(texts[i], &m, NULL), DCP_OK);
        assert_int_equal(model_max_sequence(m), 32768);
        assert_int_equal(model_unit_params(m, 1), 12);
        assert_int_equal(param(m, "model.layers.1.self_attn.k_proj.bias")->shape[0], 64);
        assert_int_equal(param(m, "model.layers.1.self_attn.q_proj.bias")->shape[0], i ? 128 : 64);
        assert_null(param(m, "model.layers.1.self_attn.o_proj.bias"));
        model_destroy(m);
    }
    assert_refused("{\"model_type\":\"qwen2\"," SIZES "}", DCP_ERR_ARG, "num_key_value_heads 32");
}

static void expect_windows(const char *members, const uint64_t *want, size_t layers) {
    char text[512];
    model_config c = {0};
    snprintf(text, sizeof text, "{" SIZES ",\"num_key_value_heads\":2,%s}", members);
    json_t *config = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(config);
    assert_int_equal(model_config_read(config, &c, NULL), DCP_OK);
    assert_int_equal(c.layers, layers);
    assert_int_equal(!c.windows, !want);
    for (size_t i = 0; want && i < layers; i++) assert_int_equal(c.windows[i], want[i]);
    model_config_free(&c);
    json_decref(config);
}

/* Which layers of which family have a window, as in transformers. */
static void windows(void **state) {
    (void)state;
    static const struct {
        const char *members;
        uint64_t want[2]; /* of the two layers; none at all: no list is made */
    } cases[] = {
        {"\"model_type\":\"mistral\"", {4096, 4096}},
        {"\"model_type\":\"mistral\",\"sliding_window\":null", {0, 0}},
        {"\"model_type\":\"mistral\",\"sliding_window\":12", {12, 12}},
        {"\"model_type\":\"mistral\",\"sliding_window\":12,\"max_window_layers\":1", {12, 12}},
        {"\"model_type\":\"mistral\",\"sliding_window\":12,\"layer_types\":[\"sliding_attention\","
         "\"full_attention\"]",
         {12, 0}},
        {"\"model_type\":\"mistral\",\"sliding_window\":null,\"layer_types\":[\"full_attention\","
         "\"full_attention\"]",
         {0, 0}},
        {"\"model_type\":\"qwen2\",\"sliding_window\":12", {0, 0}},
        {"\"model_type\":\"qwen2\",\"sliding_window\":12,\"use_sliding_window\":true", {0, 0}},
        {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"max_window_layers\":0",
         {4096, 4096}},
        {"\"model_type\":\"qwen2\",\"sliding_window\":12,\"use_sliding_window\":true,"
         "\"max_window_layers\":1",
         {0, 12}},
        {"\"model_type\":\"qwen3\",\"sliding_window\":12,\"use_sliding_window\":true,"
         "\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
         {12, 0}},
        {"\"model_type\":\"qwen3\",\"sliding_window\":null,\"use_sliding_window\":true,"
         "\"max_window_layers\":0",
         {0, 0}},
        {"\"model_type\":\"llama\",\"layer_types\":[\"full_attention\",\"full_attention\"]",
         {0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t *want = cases[i].want;
        expect_windows(cases[i].members, want[0] || want[1] ? want : NULL, 2);
    }
}

static void wrong_windows(void **state) {
    (void)state;
    static const struct {
        const char *members;
        int status;
        const char *named;
    } cases[] = {
        {"\"model_type\":\"mistral\",\"sliding_window\":0", DCP_ERR_ARG,
         "sliding_window is 0, not in 1.."},
        {"\"model_type\":\"mistral\",\"sliding_window\":\"12\"", DCP_ERR_ARG, "sliding_window"},
        {"\"model_type\":\"mistral\",\"sliding_window\":null,\"layer_types\":[\"sliding_"
         "attention\","
         "\"full_attention\"]",
         DCP_ERR_ARG, "there is no window (sliding_window)"},
        {"\"model_type\":\"qwen2\",\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
         DCP_ERR_ARG, "there is no window (use_sliding_window, sliding_window)"},
        {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"max_window_layers\":-1",
         DCP_ERR_ARG, "max_window_layers is -1"},
        {"\"model_type\":\"qwen2\",\"layer_types\":[\"chunked_attention\",\"full_attention\"]",
         DCP_ERR_UNSUPPORTED,
         "layer_types \"chunked_attention\" is not supported (only full_attention, "
         "sliding_attention)"},
        {"\"model_type\":\"llama\",\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
         DCP_ERR_UNSUPPORTED,
         "layer_types \"sliding_attention\" is not supported (only full_attention)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, "{" SIZES ",\"num_key_value_heads\":2,%s}", cases[i].members);
        assert_refused(text, cases[i].status, cases[i].named);
    }
}

/* Mistral has no biases, and 8 heads of keys where none are told. */
static void mistral(void **state) {
    (void)state;
    model *m = NULL;
    static const char *const text =
        "{\"model_type\":\"mistral\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":"
        "112,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":16,\"attention_bias\":true}";
    assert_int_equal(create(text, &m, NULL), DCP_OK);
    assert_int_equal(model_max_sequence(m), 131072);
    assert_int_equal(model_unit_params(m, 1), 9);
    assert_int_equal(param(m, "model.layers.0.self_attn.k_proj.weight")->shape[0], 32);
    model_destroy(m);
}

static void unsupported(void **state) {
    (void)state;
    const struct {
        const char *member, *named;
    } cases[] = {
        {"\"use_sliding_window\":true", "use_sliding_window"},
        {"\"attention_dropout\":0.1", "attention_dropout 0.1"},
        {"\"hidden_act\":\"quick_gelu\"", "hidden_act \"quick_gelu\""},
        {"\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "layer_types"},
        {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}", "rope_scaling"},
        {"\"partial_rotary_factor\":0.5", "partial_rotary_factor"},
        {"\"quantization_config\":{}", "quantization_config"},
        {"\"sliding_window\":4096", "sliding_window 4096: windows are not supported in this "
                                    "family; to train without these features, add: "
                                    "model.sliding_window=null"},
        {"\"sliding_window\":\"4096\",\"use_sliding_window\":null", "sliding_window"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\":\"llama\"," SIZES ",%s}", cases[i].member);
        assert_refused(text, DCP_ERR_UNSUPPORTED, cases[i].named);
    }
    assert_refused("{\"model_type\":\"gpt5\"}", DCP_ERR_UNSUPPORTED, "gpt5");
    assert_refused("{\"model_type\":\"qwen3\"," SIZES ",\"mlp_bias\":true}", DCP_ERR_UNSUPPORTED,
                   "mlp_bias");
}

static void biased_llama(void **state) {
    (void)state;
    model *m = NULL;
    const char *text =
        "{\"model_type\":\"llama\"," SIZES
        ",\"attention_bias\":true,\"mlp_bias\":true,\"hidden_act\":\"gelu\","
        "\"num_key_value_heads\":1,\"sliding_window\":64,\"use_sliding_window\":false}";
    assert_int_equal(create(text, &m, NULL), DCP_OK);
    assert_int_equal(model_unit_params(m, 1), 16);
    assert_int_equal(param(m, "model.layers.0.self_attn.o_proj.bias")->shape[0], 64);
    assert_int_equal(param(m, "model.layers.0.self_attn.k_proj.bias")->shape[0], 16);
    assert_int_equal(param(m, "model.layers.0.mlp.gate_proj.bias")->init, MODEL_INIT_ZEROS);
    assert_null(param(m, "lm_head.bias"));
    model_destroy(m);
}

/* GPT-2's own spelling, that of newer families and both give the same model. */
static void spellings_of_gpt2(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"model_type\":\"gpt2\",\"vocab_size\":300,\"n_embd\":64,\"n_layer\":2,\"n_head\":4,"
        "\"n_positions\":96,\"n_ctx\":96,\"n_inner\":null,\"resid_pdrop\":0.0,\"attn_pdrop\":0,"
        "\"activation_function\":\"gelu_new\",\"summary_first_dropout\":0.1}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":300,\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"max_position_embeddings\":96,\"n_inner\":256}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":300,\"n_embd\":64,\"n_layer\":2,\"n_head\":4,"
        "\"hidden_size\":64,\"n_ctx\":7,\"n_positions\":96}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        model *m = NULL;
        assert_int_equal(create(texts[i], &m, NULL), DCP_OK);
        assert_int_equal(model_units(m), 3);
        assert_int_equal(model_unit_params(m, 0), 4); /* tied */
        assert_int_equal(model_unit_params(m, 2), 12);
        assert_int_equal(model_max_sequence(m), 96);
        assert_int_equal(param(m, "transformer.wpe.weight")->shape[0], 96);
        assert_int_equal(param(m, "transformer.h.1.attn.c_attn.weight")->shape[1], 192);
        assert_int_equal(param(m, "transformer.h.1.mlp.c_fc.weight")->shape[1], 256);
        const model_param *p = param(m, "transformer.h.0.mlp.c_proj.weight");
        assert_true(p->std > 0.0099 && p->std < 0.0101); /* 0.02 / sqrt(2 * 2) */
        assert_string_equal(p->name + p->base, "h.0.mlp.c_proj.weight");
        model_destroy(m);
    }
}

#define GPT2 "\"model_type\":\"gpt2\",\"vocab_size\":300,\"n_embd\":64,\"n_layer\":2,\"n_head\":4"
#define VIT                                                                                        \
    "\"model_type\":\"vit\",\"hidden_size\":48,\"intermediate_size\":80,\"num_hidden_layers\":2,"  \
    "\"num_attention_heads\":4"

static void images(void **state) {
    (void)state;
    static const struct {
        const char *members;
        uint64_t classes, height, width, positions;
    } cases[] = {
        {"\"image_size\":16,\"patch_size\":4,\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"}", 3,
         16, 16, 17},
        {"\"image_size\":[16,24],\"patch_size\":[4,8],\"num_labels\":7", 7, 16, 24, 13},
        {"\"image_size\":30,\"patch_size\":7", 2, 30, 30, 17},
        {"\"problem_type\":\"single_label_classification\",\"qkv_bias\":false", 2, 224, 224, 197},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        model *m = NULL;
        snprintf(text, sizeof text, "{" VIT ",%s}", cases[i].members);
        assert_int_equal(create(text, &m, NULL), DCP_OK);
        const sample_shape s = model_sample(m, 256);
        assert_int_equal(s.tokens, 0);
        assert_int_equal(s.ndim, 3);
        assert_int_equal(s.dims[1], cases[i].height);
        assert_int_equal(s.dims[2], cases[i].width);
        assert_int_equal(s.classes, cases[i].classes);
        assert_int_equal(param(m, "vit.embeddings.position_embeddings")->shape[1],
                         cases[i].positions);
        assert_int_equal(param(m, "classifier.bias")->shape[0], cases[i].classes);
        assert_int_equal(!param(m, "vit.encoder.layer.0.attention.attention.key.bias"), i == 3);
        model_destroy(m);
    }
}

static void other_families_refuse(void **state) {
    (void)state;
    const struct {
        const char *text;
        int status;
        const char *named;
    } cases[] = {
        {GPT2 ",\"resid_pdrop\":0.1", DCP_ERR_UNSUPPORTED, "resid_pdrop 0.1"},
        {GPT2 ",\"attn_pdrop\":1e-3", DCP_ERR_UNSUPPORTED, "attn_pdrop 0.001"},
        {GPT2 ",\"embd_pdrop\":\"0\"", DCP_ERR_ARG, "embd_pdrop"},
        {GPT2 ",\"scale_attn_weights\":false", DCP_ERR_UNSUPPORTED, "scale_attn_weights false"},
        {GPT2 ",\"scale_attn_by_inverse_layer_idx\":true", DCP_ERR_UNSUPPORTED,
         "scale_attn_by_inverse_layer_idx true"},
        {GPT2 ",\"add_cross_attention\":true", DCP_ERR_UNSUPPORTED, "add_cross_attention true"},
        {GPT2 ",\"activation_function\":\"mish\"", DCP_ERR_UNSUPPORTED,
         "activation_function \"mish\""},
        {GPT2 ",\"n_embd\":66", DCP_ERR_ARG, "n_embd 66"},
        {GPT2 ",\"hidden_size\":65", DCP_ERR_ARG, "n_embd and hidden_size"},
        {GPT2 ",\"n_inner\":0", DCP_ERR_ARG, "n_inner"},
        {"\"model_type\":\"gpt2\",\"vocab_size\":300", DCP_ERR_ARG, "n_embd is missing"},
        {VIT ",\"hidden_dropout_prob\":0.2", DCP_ERR_UNSUPPORTED, "hidden_dropout_prob 0.2"},
        {VIT ",\"problem_type\":\"regression\"", DCP_ERR_UNSUPPORTED,
         "problem_type \"regression\""},
        {VIT ",\"num_labels\":1", DCP_ERR_UNSUPPORTED, "num_labels"},
        {VIT ",\"num_labels\":3,\"id2label\":{\"0\":\"a\",\"1\":\"b\"}", DCP_ERR_ARG,
         "num_labels is 3"},
        {VIT ",\"image_size\":[8]", DCP_ERR_ARG, "image_size"},
        {VIT ",\"image_size\":[8,8,8]", DCP_ERR_ARG, "image_size"},
        {VIT ",\"image_size\":8", DCP_ERR_ARG, "patch_size 16 is more than image_size 8"},
        {VIT ",\"image_size\":200000000", DCP_ERR_ARG, "image_size"},
        {VIT ",\"hidden_act\":7", DCP_ERR_ARG, "hidden_act"},
        {"\"model_type\":\"mlp\"", DCP_ERR_ARG, "sizes"},
        {"\"model_type\":\"mlp\",\"sizes\":[4]", DCP_ERR_ARG, "sizes"},
        {"\"model_type\":\"mlp\",\"sizes\":[4,0]", DCP_ERR_ARG, "sizes[1]"},
        {"\"model_type\":\"mlp\",\"sizes\":[4,2],\"bias\":false", DCP_ERR_UNSUPPORTED, "bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, "{%s}", cases[i].text);
        assert_refused(text, cases[i].status, cases[i].named);
    }
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
        {"\"layer_types\":\"sliding_attention\"", "layer_types is not a list"},
        {"\"layer_types\":[\"full_attention\"]", "layer_types names 1 layers"},
        {"\"layer_types\":[]", "layer_types names 0 layers, but num_hidden_layers is 2"},
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

/* A talker's config.json, with more members of its objects. */
static void put_talker(char text[2048], const char *outer, const char *inner) {
    snprintf(text, 2048,
             "{\"model_type\":\"qwen3_tts\",\"tts_pad_token_id\":32,\"tts_bos_token_id\":33,"
             "\"tts_eos_token_id\":34,\"talker_config\":{" SIZES
             ",\"head_dim\":16,\"num_key_value_heads\":2,\"num_code_groups\":4,"
             "\"text_vocab_size\":35,\"text_hidden_size\":24,\"codec_pad_id\":12,"
             "\"codec_bos_id\":13,\"codec_eos_token_id\":14,\"codec_nothink_id\":16,"
             "\"codec_think_bos_id\":17,\"codec_think_eos_id\":18%s,\"code_predictor_config\":{"
             "\"vocab_size\":50,\"hidden_size\":32,\"intermediate_size\":40,"
             "\"num_hidden_layers\":3,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
             "\"head_dim\":8,\"num_code_groups\":4%s}}}",
             outer, inner);
}

/* What is wrong in an object inside another one is named with both. */
static void wrong_talkers(void **state) {
    (void)state;
    static const struct {
        const char *member;
        int status;
        const char *named;
    } cases[] = {
        {"\"hidden_size\":-1", DCP_ERR_ARG, "hidden_size is -1"},
        {"\"num_hidden_layers\":null", DCP_ERR_ARG, "num_hidden_layers is missing"},
        {"\"intermediate_size\":1152921504606846976", DCP_ERR_ARG, "intermediate_size is 11529215"},
        {"\"vocab_size\":\"50\"", DCP_ERR_ARG, "vocab_size is not an integer"},
        {"\"head_dim\":7", DCP_ERR_ARG, "head_dim 7 is odd"},
        {"\"num_key_value_heads\":3", DCP_ERR_ARG, "num_attention_heads "},
        {"\"layer_types\":\"full_attention\"", DCP_ERR_ARG, "layer_types is not a list"},
        {"\"layer_types\":[\"full_attention\"]", DCP_ERR_ARG, "layer_types names 1 layers"},
        {"\"num_hidden_layers\":1,\"layer_types\":[\"sliding_attention\"]", DCP_ERR_ARG,
         "layer_types has sliding_attention, but there is no window"},
        {"\"num_hidden_layers\":1,\"layer_types\":[\"chunked\"]", DCP_ERR_UNSUPPORTED,
         "layer_types \"chunked\" is not supported"},
        {"\"use_sliding_window\":1", DCP_ERR_ARG, "use_sliding_window is neither"},
        {"\"tie_word_embeddings\":true", DCP_ERR_UNSUPPORTED, "tie_word_embeddings true"},
        {"\"mlp_bias\":true", DCP_ERR_UNSUPPORTED, "mlp_bias true"},
        {"\"attention_bias\":true", DCP_ERR_UNSUPPORTED, "attention_bias true"},
        {"\"attention_dropout\":0.1", DCP_ERR_UNSUPPORTED, "attention_dropout 0.1"},
        {"\"hidden_act\":\"mish\"", DCP_ERR_UNSUPPORTED, "hidden_act \"mish\""},
        {"\"rope_scaling\":{\"rope_type\":\"dynamic\"}", DCP_ERR_UNSUPPORTED,
         "rope_scaling.rope_type \"dynamic\""},
        {"\"num_experts\":4", DCP_ERR_UNSUPPORTED, "num_experts 4"},
        {"\"num_code_groups\":1025", DCP_ERR_ARG, "num_code_groups is 1025"},
        {"\"num_code_groups\":5", DCP_ERR_ARG, "num_code_groups "},
    };
    static const char *const paths[] = {"talker_config.", "talker_config.code_predictor_config."};
    char text[2048], named[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int inner = 0; inner < 2; inner++) {
            char member[128];
            snprintf(member, sizeof member, ",%s", cases[i].member);
            put_talker(text, inner ? "" : member, inner ? member : "");
            snprintf(named, sizeof named, "%s%s", paths[inner], cases[i].named);
            assert_refused(text, cases[i].status, named);
        }
    put_talker(text, ",\"vocab_size\":1", "");
    assert_refused(text, DCP_ERR_ARG, "talker_config.vocab_size is 1");
    put_talker(text, ",\"text_vocab_size\":1", "");
    assert_refused(text, DCP_ERR_ARG, "talker_config.text_vocab_size is 1");
    put_talker(text, ",\"codec_pad_id\":300", "");
    assert_refused(text, DCP_ERR_ARG, "talker_config.codec_pad_id is 300, not in 1..299");
    put_talker(text, "", ",\"max_position_embeddings\":3");
    assert_refused(text, DCP_ERR_ARG, "code_predictor_config.num_code_groups is 4");
    assert_refused("{\"model_type\":\"qwen3_tts\"}", DCP_ERR_ARG, "talker_config is missing");
    assert_refused("{\"model_type\":\"qwen3_tts\",\"talker_config\":{\"code_predictor_config\":7}}",
                   DCP_ERR_ARG, "talker_config.code_predictor_config is not an object");
}

/* All that speaks against a config is told at once, with what to set. */
static void all_reasons(void **state) {
    (void)state;
    static const char *const hub_gpt2 =
        "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_embd\":768,\"n_layer\":12,\"n_head\":12,"
        "\"n_positions\":1024,\"n_ctx\":1024,\"resid_pdrop\":0.1,\"embd_pdrop\":0.1,"
        "\"attn_pdrop\":0.1,\"summary_first_dropout\":0.1}";
    assert_refused(
        hub_gpt2, DCP_ERR_UNSUPPORTED,
        "model config: resid_pdrop 0.1: dropout is not supported; embd_pdrop 0.1: "
        "dropout is not supported; attn_pdrop 0.1: dropout is not supported; to train "
        "without these features, add: model.resid_pdrop=0 model.embd_pdrop=0 model.attn_pdrop=0");
    static const char *const gemma2 =
        "{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":50.0,"
        "\"final_logit_softcapping\":30.0,\"sliding_window\":4096,\"hidden_size\":2304}";
    assert_refused(gemma2, DCP_ERR_UNSUPPORTED,
                   "; attn_logit_softcapping 50: caps on scores are not supported; "
                   "final_logit_softcapping 30: caps on logits are not supported");
    static const char *const mixtral =
        "{\"model_type\":\"mixtral\",\"num_local_experts\":8,\"num_experts_per_tok\":2,"
        "\"sliding_window\":null,\"hidden_size\":4096}";
    assert_refused(mixtral, DCP_ERR_UNSUPPORTED,
                   "model config: model_type \"mixtral\" is not supported (gpt2, llama, ");
    assert_refused(mixtral, DCP_ERR_UNSUPPORTED,
                   "; num_local_experts 8: experts are not supported");
}

/* Where a reason goes away by no setting, none is given. */
static void helpless(void **state) {
    (void)state;
    model *m = NULL;
    dcp_error err = {0};
    assert_int_equal(
        create("{\"model_type\":\"gemma2\",\"final_logit_softcapping\":30.0}", &m, &err),
        DCP_ERR_UNSUPPORTED);
    assert_null(strstr(err.message, "model.final_logit_softcapping"));
    assert_refused("{" VIT ",\"num_labels\":1,\"hidden_dropout_prob\":0.5}", DCP_ERR_UNSUPPORTED,
                   "one label: a regression is not supported (at least 2 labels are required); "
                   "hidden_dropout_prob 0.5");
}

/* More than a message holds: the rest is counted. */
static void many_reasons(void **state) {
    (void)state;
    char text[4096] = "{\"model_type\":\"mlp\",\"sizes\":[4,2]";
    for (int i = 0; i < 30; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ",\"unknown_%02d\":1", i);
    strcat(text, "}");
    assert_refused(text, DCP_ERR_UNSUPPORTED, "and 23 more");
}

/* Operations of a sample, where the parameters for which trains[unit][i] holds are trained; NULL:
 * all are. */
static double flops(const char *text, uint64_t sequence, int (*trains)(const char *name)) {
    unsigned char trained[128];
    model *m = NULL;
    size_t n = 0;
    assert_int_equal(create(text, &m, NULL), DCP_OK);
    model_set_frames(m, 2);
    for (size_t unit = 0; unit < model_units(m); unit++)
        for (size_t i = 0; i < model_unit_params(m, unit); i++)
            trained[n++] = (unsigned char)(trains && trains(model_unit_param(m, unit, i)->name));
    const double found = model_flops_per_sample(m, sequence, trains ? trained : NULL);
    model_destroy(m);
    return found;
}

static int only_head(const char *name) { return strcmp(name, "lm_head.weight") == 0; }
static int only_norm(const char *name) { return strcmp(name, "model.norm.weight") == 0; }
static int only_down_1(const char *name) {
    return strcmp(name, "model.layers.1.mlp.down_proj.weight") == 0;
}
static int only_value_0(const char *name) {
    return strcmp(name, "model.layers.0.self_attn.v_proj.weight") == 0;
}
static int only_code_head(const char *name) {
    return strcmp(name, "talker.code_predictor.lm_head.2.weight") == 0;
}
static int only_text(const char *name) { return strstr(name, "text_embedding") != NULL; }
static int not_text(const char *name) { return !strstr(name, ".text_"); }
static int only_predictor(const char *name) { return strstr(name, "code_predictor") != NULL; }
static int not_embedding(const char *name) { return !strstr(name, "embed"); }

/* By hand: of 10 tokens, elements of the products times 2 for the output, 2 for the weight's and 2
 * for the input's gradient. */
static void counts_operations(void **state) {
    (void)state;
    static const char untied[] = "{\"model_type\":\"llama\"," SIZES "}";
    static const char tied[] = "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":true}";
    const double n = 10, attention = 4 * n * n * 64; /* forwards, of a block */
    const double q = 64 * 64, up = 112 * 64, block = 4 * q + 3 * up, head = 300 * 64;
    const double forward = 2 * n * (2 * block + head) + 2 * attention;
    assert_true(flops(untied, 10, NULL) == 3 * forward);
    assert_true(flops(tied, 10, NULL) == 3 * forward);
    assert_true(flops(untied, 10, only_head) == forward + 2 * n * head);
    assert_true(flops(untied, 10, only_norm) == forward + 2 * n * head);
    assert_true(flops(untied, 10, only_down_1) == forward + 2 * n * (up + head));
    /* the head's input's gradient, all of the second block's, and of the first what follows */
    assert_true(flops(untied, 10, only_value_0) ==
                forward + 2 * n * (head + block + q + 3 * up + q) + 2 * 2 * attention);
    /* nothing before the first block's norm is trained, which needs its input's gradient */
    assert_true(flops(untied, 10, not_embedding) == 3 * forward);
    /* of 10 tokens 4 in the second layer's window */
    static const char window[] =
        "{\"model_type\":\"qwen3\"," SIZES ",\"head_dim\":16,"
        "\"sliding_window\":4,\"use_sliding_window\":true,\"max_window_layers\":1}";
    assert_true(flops(window, 10, NULL) == 3 * (forward - attention + attention * 4 / 10));
    /* 16 patches of 48 numbers, whose gradient nobody needs; one class token is judged */
    static const char vit[] = "{" VIT ",\"image_size\":16,\"patch_size\":4,\"num_labels\":7}";
    const double blocks = 2 * (17 * (4 * 48 * 48 + 2 * 80 * 48.0) * 2 + 4 * 17 * 17 * 48.0);
    assert_true(flops(vit, 0, NULL) == 3 * blocks + 2 * 16 * 2 * 48 * 48 + 3 * 2 * 48 * 7);
    static const char mlp[] = "{\"model_type\":\"mlp\",\"sizes\":[16,8,3]}";
    assert_true(flops(mlp, 0, NULL) == 2 * 2 * 16 * 8 + 3 * 2 * 8 * 3);
}

/* A talker of 10 positions and 2 frames of 4 codes, of which a row of the predictor sees as many.
 */
static void counts_talker(void **state) {
    (void)state;
    char text[2048];
    put_talker(text, "", "");
    const double n = 10, frames = 2, rows = frames * 4;
    const double project = 24 * 24 + 24 * 64, block = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 112 * 64;
    const double head = 300 * 64, fall = 64 * 32, code_head = 50 * 32;
    const double code_block = 2 * 32 * 16 + 2 * 32 * 8 + 3 * 40 * 32;
    const double attention = 2 * 4 * n * n * 64, code_attention = 3 * 4 * rows * 4 * 16;
    const double talker = 2 * n * (2 * block + head) + attention;
    const double predictor = 2 * rows * (fall + 3 * code_block) + code_attention;
    const double heads = 2 * frames * 3 * code_head;
    const double forward = 2 * n * project + talker + predictor + heads;
    assert_true(flops(text, 10, NULL) == 3 * forward);
    /* nobody needs a gradient of what leaves the text */
    assert_true(flops(text, 10, not_text) == 3 * forward - 2 * 2 * n * project);
    /* no weight's gradient, but all inputs' */
    assert_true(flops(text, 10, only_text) == 2 * forward + attention + code_attention);
    assert_true(flops(text, 10, only_code_head) == forward + 2 * frames * code_head);
    /* its tables are at the talker's input, too */
    assert_true(flops(text, 10, only_predictor) ==
                2 * n * project + 2 * talker + attention + 3 * (predictor + heads));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_llama),   cmocka_unit_test(newer_qwen3),
        cmocka_unit_test(qwen2),         cmocka_unit_test(windows),
        cmocka_unit_test(wrong_windows), cmocka_unit_test(mistral),
        cmocka_unit_test(unsupported),   cmocka_unit_test(wrong),
        cmocka_unit_test(biased_llama),  cmocka_unit_test(spellings_of_gpt2),
        cmocka_unit_test(images),        cmocka_unit_test(other_families_refuse),
        cmocka_unit_test(all_reasons),   cmocka_unit_test(helpless),
        cmocka_unit_test(many_reasons),  cmocka_unit_test(counts_operations),
        cmocka_unit_test(wrong_talkers), cmocka_unit_test(counts_talker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
