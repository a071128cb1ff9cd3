#include "models/decoder.h"

#include "programs/fail.h"

/* heads and head_dim where the config gives hidden_size / heads. */
int model_decoder_take_head_dim(model_config *c, const char *hidden, const char *heads,
                                dcp_error *err) {
    if (c->hidden % c->heads)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %s %llu is no multiple of %s %llu, and head_dim is "
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
    /* null means as many as heads, whatever the family's default is. */
    const int usual = c->kv_heads && !json_object_get(keys->object, "num_key_value_heads");
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
    int status = model_keys_flag(keys, "tie_word_embeddings", 0, &c->tied, err);
    if (!status) status = model_keys_number(keys, "rms_norm_eps", 1e-6, 0.0, &c->norm_eps, err);
    if (!status)
        status = model_keys_number(keys, "initializer_range", 0.02, 0.0, &c->init_std, err);
    if (!status) status = model_rope_read(keys, c->max_positions, &c->rope, err);
    if (!status) status = model_keys_flag(keys, "attention_bias", 0, &c->qkv_bias, err);
    if (!status) status = model_keys_activation(keys, "hidden_act", "silu", &c->activation, err);
    if (!status) status = model_windows_read(keys, windows, c->layers, &c->windows, err);
    c->o_bias = c->qkv_bias;
    return status ? status : model_keys_no_dropout(keys, dropout, 1, err);
}

int model_decoder_read(const model_keys *keys, model_windows_of windows, model_config *c,
                       dcp_error *err) {
    c->input = INPUT_TOKENS;
    c->causal = 1;
    const int status = read_llama_sizes(keys, c, err);
    return status ? status : read_rest(keys, windows, c, err);
}

int model_decoder_check_heads(const model_keys *keys, const model_config *c, dcp_error *err) {
    if (c->sizes) return DCP_OK;
    if (c->heads % c->kv_heads)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %snum_attention_heads %llu is no multiple of "
                         "num_key_value_heads %llu; change one of them",
                         keys->path, (unsigned long long)c->heads, (unsigned long long)c->kv_heads);
    if (c->rope.theta > 0.0 && c->head_dim % 2)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %shead_dim %llu is odd; rotary positions take an even one",
                         keys->path, (unsigned long long)c->head_dim);
    if (c->heads * c->head_dim > KEYS_MAX_SIZE)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %snum_attention_heads %llu times head_dim %llu is over "
                         "%llu; make them smaller",
                         keys->path, (unsigned long long)c->heads, (unsigned long long)c->head_dim,
                         (unsigned long long)KEYS_MAX_SIZE);
    return DCP_OK;
}
