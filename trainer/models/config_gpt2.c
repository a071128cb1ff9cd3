/* GPT-2, in its own spelling and in that of newer families. n_ctx has no say, as in transformers:
 * the positions are n_positions. Dropout that a config does not mention counts as none. */
#include "models/config.h"
#include "models/keys.h"

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

static int read_sizes(const json_t *config, model_config *c, dcp_error *err) {
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
    int status = keys_sizes(config, entries, sizeof entries / sizeof *entries, err);
    if (status) return status;
    c->kv_heads = c->heads;
    const keys_entry inner = {.key = "n_inner", .absent = 4 * c->hidden, .out = &c->intermediate};
    status = keys_size(config, &inner, err);
    return status ? status : model_config_head_dim(c, "n_embd", "n_head", err);
}

int model_config_gpt2(const json_t *config, model_config *c, dcp_error *err) {
    static const char *const dropout[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    c->names = &gpt2;
    c->input = INPUT_TOKENS;
    c->causal = c->layer_norm = c->in_first = 1;
    c->qkv_bias = c->o_bias = c->mlp_bias = 1;
    int status = read_sizes(config, c, err);
    if (!status) status = keys_flag(config, "tie_word_embeddings", 1, &c->tied, err);
    if (!status) status = keys_number(config, "layer_norm_epsilon", 1e-5, 0.0, &c->norm_eps, err);
    if (!status) status = keys_number(config, "initializer_range", 0.02, 0.0, &c->init_std, err);
    if (!status)
        status = keys_activation(config, "activation_function", "gelu_new", &c->activation, err);
    if (!status) status = keys_no_dropout(config, dropout, 3, err);
    if (!status) status = keys_only_flag(config, "scale_attn_weights", 1, err);
    if (!status) status = keys_only_flag(config, "scale_attn_by_inverse_layer_idx", 0, err);
    if (!status) status = keys_only_flag(config, "add_cross_attention", 0, err);
    return status;
}
