/* Llama and Qwen3. Defaults are those of transformers' configuration classes. Keys that change the
 * computation in a way that we don't have are refused by name; all others (token ids, dtype,
 * versions) pass. */
#include <string.h>

#include "models/config.h"
#include "models/keys.h"
#include "programs/fail.h"

#define NAMES                                                                                      \
    .base = "model.", .embed = "model.embed_tokens", .final_norm = "model.norm",                   \
    .head = "lm_head", .block = "model.layers.", .after = ".",                                     \
    .attention_norm = "input_layernorm", .q = "self_attn.q_proj", .k = "self_attn.k_proj",         \
    .v = "self_attn.v_proj", .o = "self_attn.o_proj", .mlp_norm = "post_attention_layernorm",      \
    .up = "mlp.up_proj", .down = "mlp.down_proj", .gate = "mlp.gate_proj"

static const family_names llama = {NAMES};
/* RMSNorm of each head's query and key before their rotation. */
static const family_names qwen3 = {NAMES, .q_norm = "self_attn.q_norm",
                                   .k_norm = "self_attn.k_norm"};

static int check_layer_types(const json_t *config, const model_config *c, dcp_error *err) {
    const json_t *types = keys_value(config, "layer_types"), *type;
    size_t i;
    if (!types) return DCP_OK;
    if (!json_is_array(types))
        return core_fail(err, DCP_ERR_ARG, "model config: layer_types is not a list");
    if (json_array_size(types) != c->layers)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: layer_types names %zu layers, num_hidden_layers is %llu",
                         json_array_size(types), (unsigned long long)c->layers);
    json_array_foreach(types, i, type) {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "full_attention"))
            return core_fail(err, DCP_ERR_UNSUPPORTED,
                             "model config: layer_types: \"%.100s\" is not supported (only "
                             "full_attention)",
                             name ? name : "?");
    }
    return DCP_OK;
}

/* rope_parameters (newer) or rope_scaling (older): only the plain rotation. */
static int check_rope(const json_t *config, const char *key, dcp_error *err) {
    const json_t *rope = keys_value(config, key);
    if (!rope) return DCP_OK;
    if (!json_is_object(rope))
        return core_fail(err, DCP_ERR_ARG, "model config: %s is not an object", key);
    const char *member;
    json_t *value;
    json_object_foreach((json_t *)rope, member, value) {
        if (json_is_object(value))
            return core_fail(err, DCP_ERR_UNSUPPORTED,
                             "model config: %s.%.100s: rotations that differ between layers "
                             "are not supported",
                             key, member);
    }
    const json_t *type = keys_value(rope, "rope_type");
    type = type ? type : keys_value(rope, "type");
    const char *name = type ? json_string_value(type) : "default";
    if (!name || strcmp(name, "default"))
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "model config: %s.rope_type \"%.100s\" is not supported (only default)",
                         key, name ? name : "?");
    return keys_only_number(rope, "partial_rotary_factor", 1.0, err);
}

/* As transformers: rope_scaling goes before rope_parameters, and either's rope_theta before the
 * config's own. */
static int read_rope(const json_t *config, model_config *c, dcp_error *err) {
    int status = check_rope(config, "rope_parameters", err);
    if (!status) status = check_rope(config, "rope_scaling", err);
    if (!status) status = keys_only_number(config, "partial_rotary_factor", 1.0, err);
    if (status) return status;
    const json_t *older = keys_value(config, "rope_scaling");
    const json_t *rope = older ? older : keys_value(config, "rope_parameters");
    const json_t *holder = keys_value(rope, "rope_theta") ? rope : config;
    return keys_number(holder, "rope_theta", 10000.0, 1.0, &c->rope_theta, err);
}

static int read_sizes(const json_t *config, model_config *c, dcp_error *err) {
    const keys_entry entries[] = {
        {.key = "vocab_size", .out = &c->classes},
        {.key = "hidden_size", .out = &c->hidden},
        {.key = "intermediate_size", .out = &c->intermediate},
        {.key = "num_hidden_layers", .out = &c->layers, .most = KEYS_MAX_LAYERS},
        {.key = "num_attention_heads", .out = &c->heads},
        {.key = "max_position_embeddings", .absent = c->max_positions, .out = &c->max_positions},
    };
    int status = keys_sizes(config, entries, sizeof entries / sizeof *entries, err);
    if (status) return status;
    const keys_entry kv_heads = {
        .key = "num_key_value_heads", .absent = c->heads, .out = &c->kv_heads};
    status = keys_size(config, &kv_heads, err);
    if (!status && !c->head_dim && !keys_value(config, "head_dim"))
        return model_config_head_dim(c, "hidden_size", "num_attention_heads", err);
    const keys_entry head_dim = {.key = "head_dim", .absent = c->head_dim, .out = &c->head_dim};
    return status ? status : keys_size(config, &head_dim, err);
}

static int read_rest(const json_t *config, model_config *c, dcp_error *err) {
    static const char *const dropout[] = {"attention_dropout"};
    int status = keys_flag(config, "tie_word_embeddings", 0, &c->tied, err);
    if (!status) status = keys_number(config, "rms_norm_eps", 1e-6, 0.0, &c->norm_eps, err);
    if (!status) status = keys_number(config, "initializer_range", 0.02, 0.0, &c->init_std, err);
    if (!status) status = read_rope(config, c, err);
    if (!status) status = keys_flag(config, "attention_bias", 0, &c->qkv_bias, err);
    if (!status) status = keys_activation(config, "hidden_act", "silu", &c->activation, err);
    if (!status) status = keys_only_flag(config, "use_sliding_window", 0, err);
    if (!status) status = keys_no_dropout(config, dropout, 1, err);
    c->o_bias = c->qkv_bias;
    return status ? status : check_layer_types(config, c, err);
}

static int read_decoder(const json_t *config, model_config *c, dcp_error *err) {
    c->input = INPUT_TOKENS;
    c->causal = 1;
    const int status = read_sizes(config, c, err);
    return status ? status : read_rest(config, c, err);
}

/* The key is none of Llama's: transformers ignores it there, and whoever set it expects something
 * else. Qwen3 asks for windows by use_sliding_window. */
static int refuse_window(const json_t *config, dcp_error *err) {
    const json_t *window = keys_value(config, "sliding_window");
    if (!window || json_is_false(keys_value(config, "use_sliding_window"))) return DCP_OK;
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "model config: sliding_window %" JSON_INTEGER_FORMAT
                     ": sliding windows are not supported; set it to null for full attention",
                     json_integer_value(window));
}

int model_config_llama(const json_t *config, model_config *c, dcp_error *err) {
    c->names = &llama;
    c->max_positions = 2048;
    int status = read_decoder(config, c, err);
    if (!status) status = refuse_window(config, err);
    return status ? status : keys_flag(config, "mlp_bias", 0, &c->mlp_bias, err);
}

int model_config_qwen3(const json_t *config, model_config *c, dcp_error *err) {
    c->names = &qwen3;
    c->head_dim = 128;
    c->max_positions = 32768;
    const int status = read_decoder(config, c, err);
    return status ? status : keys_only_flag(config, "mlp_bias", 0, err);
}
