#include "models/families.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

/* Sets head_dim to hidden / heads, which must be an integer. hidden, heads: the names of the keys
 * in messages. */
static int model_decoder_take_head_dim(model_config *c, const char *hidden, const char *heads,
                                       dcp_error *err) {
    if (c->hidden % c->heads)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %s %llu is not a multiple of %s %llu, and head_dim is "
                         "missing; change one of them",
                         hidden, (unsigned long long)c->hidden, heads,
                         (unsigned long long)c->heads);
    c->head_dim = c->hidden / c->heads;
    return DCP_OK;
}

static int read_llama_sizes(const model_keys *keys, model_config *c, dcp_error *err) {
    const keys_entry entries[] = {
        {.key = "vocab_size", .out = &c->classes},
        {.key = "hidden_size", .out = &c->hidden},
        {.key = "intermediate_size", .out = &c->intermediate},
        {.key = "num_hidden_layers", .out = &c->layers, .most = KEYS_MAX_LAYERS},
        {.key = "num_attention_heads", .out = &c->heads},
        {.key = "max_position_embeddings", .absent = c->max_positions, .out = &c->max_positions},
    };
    int status = model_keys_sizes(keys, entries, sizeof entries / sizeof *entries, err);
    if (status) return status;
    /* null means as many kv_heads as heads, whatever the family's default is. */
    const bool usual = c->kv_heads && !json_object_get(keys->object, "num_key_value_heads");
    const keys_entry kv_heads = {.key = "num_key_value_heads",
                                 .absent = usual ? c->kv_heads : c->heads,
                                 .out = &c->kv_heads};
    status = model_keys_size(keys, &kv_heads, err);
    if (!status && !c->head_dim && !model_keys_value(keys, "head_dim"))
        return model_decoder_take_head_dim(c, "hidden_size", "num_attention_heads", err);
    const keys_entry head_dim = {.key = "head_dim", .absent = c->head_dim, .out = &c->head_dim};
    return status ? status : model_keys_size(keys, &head_dim, err);
}

static int read_rest(const model_keys *keys, model_windows_of windows, model_config *c,
                     dcp_error *err) {
    static const char *const dropout[] = {"attention_dropout"};
    int status = model_keys_flag(keys, "tie_word_embeddings", false, &c->tied, err);
    if (!status) status = model_keys_number(keys, "rms_norm_eps", 1e-6, 0.0, &c->norm_eps, err);
    if (!status)
        status = model_keys_number(keys, "initializer_range", 0.02, 0.0, &c->init_std, err);
    if (!status) status = model_rope_read(keys, c->max_positions, &c->rope, err);
    if (!status) status = model_keys_flag(keys, "attention_bias", false, &c->qkv_bias, err);
    if (!status) status = model_keys_activation(keys, "hidden_act", "silu", &c->activation, err);
    if (!status) status = model_windows_read(keys, windows, c->layers, &c->windows, err);
    c->o_bias = c->qkv_bias;
    return status ? status : model_keys_no_dropout(keys, dropout, 1, err);
}

/* Reads the sizes and the other keys of a decoder. The previous values of `c` serve as defaults. */
static int model_decoder_read(const model_keys *keys, model_windows_of windows, model_config *c,
                              dcp_error *err) {
    c->input = INPUT_TOKENS;
    c->causal = true;
    const int status = read_llama_sizes(keys, c, err);
    return status ? status : read_rest(keys, windows, c, err);
}

/* Checks that the numbers and sizes of heads are consistent. */
static int model_decoder_check_heads(const model_keys *keys, const model_config *c,
                                     dcp_error *err) {
    if (c->sizes) return DCP_OK;
    if (c->heads % c->kv_heads)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %snum_attention_heads %llu is not a multiple of "
                         "num_key_value_heads %llu; change one of them",
                         keys->path, (unsigned long long)c->heads, (unsigned long long)c->kv_heads);
    if (c->rope.theta > 0.0 && c->head_dim % 2)
        return core_fail(
            err, DCP_ERR_ARG,
            "model config: %shead_dim %llu is odd; rotary positions require an even one",
            keys->path, (unsigned long long)c->head_dim);
    if (c->heads * c->head_dim > KEYS_MAX_SIZE)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %snum_attention_heads %llu times head_dim %llu is over "
                         "%llu; make them smaller",
                         keys->path, (unsigned long long)c->heads, (unsigned long long)c->head_dim,
                         (unsigned long long)KEYS_MAX_SIZE);
    return DCP_OK;
}

/* Qwen3-TTS: a talker, which is a decoder, and the decoder that predicts the other codes of its
 * frames. Each has an object of its own in config.json; the second object is inside the first. */

#define TALKER "talker_config."
#define PREDICTOR TALKER "code_predictor_config."

/* No codec has frames with more codes, so a larger number is a mistake. */
enum { MOST_GROUPS = 1024 };

static const family_names talker = {.base = "",
                                    .embed = "talker.model.codec_embedding",
                                    .final_norm = "talker.model.norm",
                                    .head = "talker.codec_head",
                                    .block = "talker.model.layers.",
                                    DECODER_BLOCK_NAMES,
                                    DECODER_HEAD_NORMS};

static const family_names predictor = {.base = "",
                                       .final_norm = "talker.code_predictor.model.norm",
                                       .block = "talker.code_predictor.model.layers.",
                                       DECODER_BLOCK_NAMES,
                                       DECODER_HEAD_NORMS};

static int read_level(const model_keys *keys, const family_names *names, model_config *c,
                      dcp_error *err) {
    c->names = names;
    c->head_dim = 128;
    c->max_positions = 32768;
    int status = model_decoder_read(keys, MODEL_WINDOWS_ASKED, c, err);
    c->input = INPUT_SPEECH;
    if (!status) status = model_keys_only_flag(keys, "mlp_bias", false, err);
    if (!status) status = model_keys_only_flag(keys, "attention_bias", false, err);
    if (!status) status = model_keys_only_flag(keys, "tie_word_embeddings", false, err);
    c->tied = c->qkv_bias = c->o_bias = false;
    model_keys_no_extras(keys);
    return status ? status : model_decoder_check_heads(keys, c, err);
}

/* Tables need more than one row, because the largest id, rows - 1, must be at least 1. */
static int check_tables(const model_config *c, dcp_error *err) {
    const bool is_text = c->classes > 1;
    if (is_text && c->speech->texts > 1) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "model config: " TALKER
                     "%s is 1, which has no room for the special ids; set it to the model's value",
                     is_text ? "text_vocab_size" : "vocab_size");
}

/* The next two functions read the special ids of the text channel and of the codec channel, which
 * represent neither text nor codes of speech. */
static int read_text_ids(const model_keys *keys, speech_config *s, dcp_error *err) {
    const uint64_t most = s->texts - 1;
    const keys_entry entries[] = {
        {.key = "tts_pad_token_id", .out = &s->text_pad, .most = most},
        {.key = "tts_bos_token_id", .out = &s->text_begin, .most = most},
        {.key = "tts_eos_token_id", .out = &s->text_end, .most = most},
    };
    return model_keys_sizes(keys, entries, sizeof entries / sizeof *entries, err);
}

static int read_code_ids(const model_keys *keys, uint64_t classes, speech_config *s,
                         dcp_error *err) {
    const uint64_t most = classes - 1;
    const keys_entry entries[] = {
        {.key = "codec_pad_id", .out = &s->pad, .most = most},
        {.key = "codec_bos_id", .out = &s->begin, .most = most},
        {.key = "codec_eos_token_id", .out = &s->end, .most = most},
        {.key = "codec_nothink_id", .out = &s->no_think, .most = most},
        {.key = "codec_think_bos_id", .out = &s->think_begin, .most = most},
        {.key = "codec_think_eos_id", .out = &s->think_end, .most = most},
    };
    return model_keys_sizes(keys, entries, sizeof entries / sizeof *entries, err);
}

/* Reads the number of codes per frame, which both objects contain. */
static int read_groups(const model_keys *outer, const model_keys *inner, speech_config *s,
                       dcp_error *err) {
    uint64_t own = 0;
    const keys_entry groups = {.key = "num_code_groups", .out = &s->groups, .most = MOST_GROUPS};
    const keys_entry same = {.key = "num_code_groups", .out = &own, .most = MOST_GROUPS};
    int status = model_keys_size(outer, &groups, err);
    if (!status) status = model_keys_size(inner, &same, err);
    if (status) return status;
    if (own == s->groups && own > 1 && own <= s->predictor.max_positions) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "model config: " TALKER "num_code_groups is %llu, " PREDICTOR
                     "num_code_groups is %llu: they must be equal, at least 2, and at most the "
                     "predictor's max_position_embeddings, %llu",
                     (unsigned long long)s->groups, (unsigned long long)own,
                     (unsigned long long)s->predictor.max_positions);
}

static int check_object(const model_keys *keys, dcp_error *err) {
    if (json_is_object(keys->object)) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "model config: %.*s is %s", (int)strlen(keys->path) - 1,
                     keys->path, keys->object ? "not an object" : "missing");
}

static int model_talker_read(const model_keys *keys, model_config *c, dcp_error *err) {
    const model_keys outer = {model_keys_value(keys, "talker_config"), TALKER, keys->refused};
    int status = check_object(&outer, err);
    if (status) return status;
    const model_keys inner = {model_keys_value(&outer, "code_predictor_config"), PREDICTOR,
                              keys->refused};
    status = check_object(&inner, err);
    if (status) return status;
    speech_config *s = c->speech = calloc(1, sizeof *s);
    if (!s) return core_fail_memory(err, sizeof *s);
    const keys_entry text[] = {{.key = "text_vocab_size", .out = &s->texts},
                               {.key = "text_hidden_size", .out = &s->text_hidden}};
    /* Frames of other codecs have a different layout. */
    model_keys_only_text(keys, "tokenizer_type", "qwen3_tts_tokenizer_12hz", NULL);
    status = read_level(&outer, &talker, c, err);
    if (!status) status = read_level(&inner, &predictor, &s->predictor, err);
    if (!status) status = read_groups(&outer, &inner, s, err);
    if (!status) status = model_keys_sizes(&outer, text, 2, err);
    if (!status) status = check_tables(c, err);
    if (!status) status = read_text_ids(keys, s, err);
    return status ? status : read_code_ids(&outer, c->classes, s, err);
}

/* The families: readers of each family's config.json, the choice of the family for a config, and
 * checks that apply to all families. */

/* GPT-2. Some keys can have either GPT-2's own name or the name that newer families use. n_ctx has
 * no effect, as in transformers: n_positions is the number of positions. If a config does not
 * mention dropout, the model has none. */

static const family_names gpt2 = {
    .base = "transformer.",
    .embed = "transformer.wte",
    .positions = "transformer.wpe.weight",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .block = "transformer.h.",
    .after = ".",
    .attention_norm = "ln_1",
    .qkv = "attn.c_attn",
    .o = "attn.c_proj",
    .mlp_norm = "ln_2",
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
};

static int read_gpt2_sizes(const model_keys *keys, model_config *c, dcp_error *err) {
    const keys_entry entries[] = {
        {.key = "vocab_size", .out = &c->classes},
        {.key = "n_embd", .other = "hidden_size", .out = &c->hidden},
        {.key = "n_layer",
         .other = "num_hidden_layers",
         .out = &c->layers,
         .most = KEYS_MAX_LAYERS},
        {.key = "n_head", .other = "num_attention_heads", .out = &c->heads},
        {.key = "n_positions",
         .other = "max_position_embeddings",
         .absent = 1024,
         .out = &c->max_positions},
    };
    int status = model_keys_sizes(keys, entries, sizeof entries / sizeof *entries, err);
    if (status) return status;
    c->kv_heads = c->heads;
    const keys_entry inner = {.key = "n_inner", .absent = 4 * c->hidden, .out = &c->intermediate};
    status = model_keys_size(keys, &inner, err);
    return status ? status : model_decoder_take_head_dim(c, "n_embd", "n_head", err);
}

static int read_gpt2(const model_keys *keys, model_config *c, dcp_error *err) {
    static const char *const dropout[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    c->names = &gpt2;
    c->input = INPUT_TOKENS;
    c->causal = c->layer_norm = c->in_first = true;
    c->qkv_bias = c->o_bias = c->mlp_bias = true;
    int status = read_gpt2_sizes(keys, c, err);
    if (!status) status = model_keys_flag(keys, "tie_word_embeddings", true, &c->tied, err);
    if (!status)
        status = model_keys_number(keys, "layer_norm_epsilon", 1e-5, 0.0, &c->norm_eps, err);
    if (!status)
        status = model_keys_number(keys, "initializer_range", 0.02, 0.0, &c->init_std, err);
    if (!status)
        status =
            model_keys_activation(keys, "activation_function", "gelu_new", &c->activation, err);
    if (!status) status = model_keys_no_dropout(keys, dropout, 3, err);
    if (!status) status = model_keys_only_flag(keys, "scale_attn_weights", true, err);
    if (!status) status = model_keys_only_flag(keys, "scale_attn_by_inverse_layer_idx", false, err);
    if (!status) status = model_keys_only_flag(keys, "add_cross_attention", false, err);
    return status;
}

/* Llama and its relatives: Mistral, Qwen2 and Qwen3. Defaults are the same as in transformers'
 * configuration classes. Keys that change the computation in an unsupported way are rejected by
 * name; all others (token ids, dtype, versions) are ignored. */

#define LLAMA_NAMES                                                                                \
    .base = "model.", .embed = "model.embed_tokens", .final_norm = "model.norm",                   \
    .head = "lm_head", .block = "model.layers.", DECODER_BLOCK_NAMES

static const family_names llama = {LLAMA_NAMES};
/* Has an RMSNorm of each head's query and key before their rotation. */
static const family_names qwen3 = {LLAMA_NAMES, DECODER_HEAD_NORMS};

static int read_llama(const model_keys *keys, model_config *c, dcp_error *err) {
    c->names = &llama;
    c->max_positions = 2048;
    const int status = model_decoder_read(keys, MODEL_WINDOWS_NEVER, c, err);
    return status ? status : model_keys_flag(keys, "mlp_bias", false, &c->mlp_bias, err);
}

/* Only queries, keys and values have biases. */
static int read_qwen2(const model_keys *keys, model_config *c, dcp_error *err) {
    c->names = &llama;
    c->kv_heads = 32;
    c->max_positions = 32768;
    const int status = model_decoder_read(keys, MODEL_WINDOWS_ASKED, c, err);
    c->qkv_bias = true;
    c->o_bias = false;
    return status ? status : model_keys_only_flag(keys, "mlp_bias", false, err);
}

/* No biases at all, and a window in every layer. */
static int read_mistral(const model_keys *keys, model_config *c, dcp_error *err) {
    c->names = &llama;
    c->kv_heads = 8;
    c->max_positions = 131072;
    const int status = model_decoder_read(keys, MODEL_WINDOWS_ALWAYS, c, err);
    c->qkv_bias = c->o_bias = false;
    return status ? status : model_keys_only_flag(keys, "mlp_bias", false, err);
}

static int read_qwen3(const model_keys *keys, model_config *c, dcp_error *err) {
    c->names = &qwen3;
    c->head_dim = 128;
    c->max_positions = 32768;
    const int status = model_decoder_read(keys, MODEL_WINDOWS_ASKED, c, err);
    return status ? status : model_keys_only_flag(keys, "mlp_bias", false, err);
}

/* ViT for image classification. */

static const family_names vit = {
    .base = "vit.",
    .class_token = "vit.embeddings.cls_token",
    .positions = "vit.embeddings.position_embeddings",
    .patches = "vit.embeddings.patch_embeddings.projection",
    .final_norm = "vit.layernorm",
    .head = "classifier",
    .block = "vit.encoder.layer.",
    .after = ".",
    .attention_norm = "layernorm_before",
    .q = "attention.attention.query",
    .k = "attention.attention.key",
    .v = "attention.attention.value",
    .o = "attention.output.dense",
    .mlp_norm = "layernorm_after",
    .up = "intermediate.dense",
    .down = "output.dense",
};

static int read_vit_sizes(const model_keys *keys, model_config *c, dcp_error *err) {
    const keys_entry entries[] = {
        {.key = "hidden_size", .out = &c->hidden},
        {.key = "intermediate_size", .out = &c->intermediate},
        {.key = "num_hidden_layers", .out = &c->layers, .most = KEYS_MAX_LAYERS},
        {.key = "num_attention_heads", .out = &c->heads},
        {.key = "num_channels", .absent = 3, .out = &c->channels},
    };
    int status = model_keys_sizes(keys, entries, sizeof entries / sizeof *entries, err);
    if (status) return status;
    c->kv_heads = c->heads;
    if (!model_keys_value(keys, "head_dim"))
        return model_decoder_take_head_dim(c, "hidden_size", "num_attention_heads", err);
    const keys_entry head_dim = {.key = "head_dim", .out = &c->head_dim};
    return model_keys_size(keys, &head_dim, err);
}

/* Reads the sizes of images and patches. A remainder of an image that is smaller than a patch is
 * skipped, as in a convolution. */
static int read_image(const model_keys *keys, model_config *c, dcp_error *err) {
    int status = model_keys_pair(keys, "image_size", 224, c->image, err);
    if (!status) status = model_keys_pair(keys, "patch_size", 16, c->patch, err);
    if (status) return status;
    for (size_t i = 0; i < 2; i++)
        if (c->patch[i] > c->image[i])
            return core_fail(err, DCP_ERR_ARG,
                             "model config: patch_size %llu is more than image_size %llu; set a "
                             "smaller patch_size",
                             (unsigned long long)c->patch[i], (unsigned long long)c->image[i]);
    if (c->image[0] * c->image[1] > KEYS_MAX_SIZE / c->channels)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: num_channels %llu times image_size %llu x %llu is over "
                         "%llu; make them smaller",
                         (unsigned long long)c->channels, (unsigned long long)c->image[0],
                         (unsigned long long)c->image[1], (unsigned long long)KEYS_MAX_SIZE);
    return DCP_OK;
}

/* Reads the number of classes: the size of id2label if it exists, otherwise num_labels, or 2 if
 * num_labels is missing, too. */
static int read_classes(const model_keys *keys, model_config *c, dcp_error *err) {
    static const char usual[] = "single_label_classification";
    const json_t *labels = model_keys_value(keys, "id2label");
    if (labels && !json_is_object(labels))
        return core_fail(
            err, DCP_ERR_ARG,
            "model config: id2label is not an object, such as {\"0\": \"cat\", \"1\": \"dog\"}");
    const uint64_t named = labels ? json_object_size(labels) : 2;
    const keys_entry classes = {.key = "num_labels", .absent = named, .out = &c->classes};
    const int status = model_keys_size(keys, &classes, err);
    if (status) return status;
    if (labels && c->classes != named)
        return core_fail(
            err, DCP_ERR_ARG,
            "model config: num_labels is %llu, but id2label names %llu labels; drop one of the two",
            (unsigned long long)c->classes, (unsigned long long)named);
    model_keys_only_text(keys, "problem_type", usual, usual);
    if (c->classes == 1)
        model_keys_refuse(keys, labels ? "id2label" : "num_labels", "with one label",
                          "a regression is not supported (at least 2 labels are required)", NULL);
    return DCP_OK;
}

static int read_vit(const model_keys *keys, model_config *c, dcp_error *err) {
    static const char *const dropout[] = {"hidden_dropout_prob", "attention_probs_dropout_prob"};
    c->names = &vit;
    c->input = INPUT_IMAGE;
    c->layer_norm = c->o_bias = c->mlp_bias = c->head_bias = true;
    int status = read_vit_sizes(keys, c, err);
    if (!status) status = read_image(keys, c, err);
    if (!status) status = read_classes(keys, c, err);
    if (!status) status = model_keys_flag(keys, "qkv_bias", true, &c->qkv_bias, err);
    if (!status) status = model_keys_number(keys, "layer_norm_eps", 1e-12, 0.0, &c->norm_eps, err);
    if (!status)
        status = model_keys_number(keys, "initializer_range", 0.02, 0.0, &c->init_std, err);
    if (!status) status = model_keys_activation(keys, "hidden_act", "gelu", &c->activation, err);
    return status ? status : model_keys_no_dropout(keys, dropout, 2, err);
}

/* A plain MLP for classification: {"model_type": "mlp", "sizes": [784, 512, 10]}, linear layers
 * with "activation" (relu) between them. The format is specific to dcp-train, so an unknown key is
 * a mistake. */

static const family_names mlp = {.base = "", .block = "layers.", .after = "", .head = "layers."};

static void check_mlp_keys(const model_keys *keys) {
    static const char *const known[] = {"model_type", "sizes",       "activation",
                                        "dtype",      "torch_dtype", "transformers_version"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)keys->object, key, value) {
        bool found = key[0] == '_' || strcmp(key, "architectures") == 0 || json_is_null(value);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= strcmp(key, known[i]) == 0;
        if (!found)
            model_refusals_add(keys->refused, key, "null",
                               "%.100s: an mlp has no such key (only sizes and activation)", key);
    }
}

static int read_mlp_sizes(const json_t *sizes, model_config *c, dcp_error *err) {
    const size_t n = json_array_size(sizes);
    if (n < 2 || n > KEYS_MAX_LAYERS)
        return core_fail(err, DCP_ERR_ARG, "model config: sizes is not a list of 2 to %llu sizes",
                         (unsigned long long)KEYS_MAX_LAYERS);
    c->layers = n - 2;
    c->sizes = malloc(n * sizeof *c->sizes);
    if (!c->sizes) return core_fail_memory(err, n * sizeof *c->sizes);
    for (size_t i = 0; i < n; i++) {
        const json_t *size = json_array_get(sizes, i);
        const json_int_t number = json_integer_value(size);
        if (!json_is_integer(size) || number < 1 || (uint64_t)number > KEYS_MAX_SIZE)
            return core_fail(err, DCP_ERR_ARG,
                             "model config: sizes[%zu] is not an integer in 1..%llu", i,
                             (unsigned long long)KEYS_MAX_SIZE);
        c->sizes[i] = (uint64_t)number;
        if (c->sizes[i] > c->hidden) c->hidden = c->sizes[i];
    }
    c->classes = c->sizes[n - 1];
    return DCP_OK;
}

static int read_mlp(const model_keys *keys, model_config *c, dcp_error *err) {
    c->names = &mlp;
    c->input = INPUT_VECTOR;
    c->mlp_bias = c->head_bias = true;
    check_mlp_keys(keys);
    const int status = read_mlp_sizes(model_keys_value(keys, "sizes"), c, err);
    return status ? status : model_keys_activation(keys, "activation", "relu", &c->activation, err);
}

static const struct family {
    const char *model_type;
    int (*read)(const model_keys *keys, model_config *c, dcp_error *err);
} families[] = {
    {"gpt2", read_gpt2},       {"llama", read_llama},
    {"mistral", read_mistral}, {"qwen2", read_qwen2},
    {"qwen3", read_qwen3},     {"vit", read_vit},
    {"mlp", read_mlp},         {"qwen3_tts", model_talker_read},
};

static void list_families(char names[128]) {
    *names = '\0';
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        snprintf(names + strlen(names), 128 - strlen(names), "%s%s", i ? ", " : "",
                 families[i].model_type);
}

/* Refuses an unknown family. The message also reports the config's unsupported keys. */
static int refuse_family(const model_keys *keys, const char *type, dcp_error *err) {
    char names[128];
    list_families(names);
    model_refusals_add(keys->refused, NULL, NULL, "model_type \"%.100s\" is not supported (%s)",
                       type, names);
    model_keys_no_extras(keys);
    return model_refusals_fail(keys->refused, err);
}

int model_config_read(const json_t *config, model_config *out, dcp_error *err) {
    model_refusals refused = {0};
    const model_keys keys = {config, "", &refused};
    if (!json_is_object(config))
        return core_fail(err, DCP_ERR_ARG, "model config: not a JSON object");
    const char *type = json_string_value(model_keys_value(&keys, "model_type"));
    if (!type) {
        char names[128];
        list_families(names);
        return core_fail(err, DCP_ERR_ARG,
                         "model config: model_type is missing; it must be one of %s", names);
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i].model_type, type) != 0) continue;
        int status = families[i].read(&keys, out, err);
        model_keys_no_extras(&keys);
        if (!status && !out->speech) status = model_decoder_check_heads(&keys, out, err);
        if (!status) status = model_refusals_fail(&refused, err);
        if (status) model_config_free(out);
        return status;
    }
    return refuse_family(&keys, type, err);
}

void model_config_free(model_config *c) {
    free(c->sizes);
    free(c->windows);
    if (c->speech) model_config_free(&c->speech->predictor);
    free(c->speech);
    c->sizes = c->windows = NULL;
    c->speech = NULL;
}
