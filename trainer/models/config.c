/* Which family a config is of, and what holds for all of them. */
#include "models/config.h"

#include <stdlib.h>
#include <string.h>

#include "models/keys.h"
#include "programs/fail.h"

static const struct family {
    const char *model_type;
    int (*read)(const json_t *config, model_config *c, dcp_error *err);
} families[] = {
    {"gpt2", model_config_gpt2}, {"llama", model_config_llama}, {"qwen3", model_config_qwen3},
    {"vit", model_config_vit},   {"mlp", model_config_mlp},
};

int model_config_head_dim(model_config *c, const char *hidden, const char *heads, dcp_error *err) {
    if (c->hidden % c->heads)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %s %llu is no multiple of %s %llu, and head_dim is "
                         "missing",
                         hidden, (unsigned long long)c->hidden, heads,
                         (unsigned long long)c->heads);
    c->head_dim = c->hidden / c->heads;
    return DCP_OK;
}

static int check_heads(const model_config *c, dcp_error *err) {
    if (c->sizes) return DCP_OK;
    if (c->heads % c->kv_heads)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: num_attention_heads %llu is no multiple of "
                         "num_key_value_heads %llu",
                         (unsigned long long)c->heads, (unsigned long long)c->kv_heads);
    if (c->rope_theta > 0.0 && c->head_dim % 2)
        return core_fail(err, DCP_ERR_ARG, "model config: head_dim %llu is odd",
                         (unsigned long long)c->head_dim);
    if (c->heads * c->head_dim > KEYS_MAX_SIZE)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: num_attention_heads %llu times head_dim %llu is over "
                         "%llu",
                         (unsigned long long)c->heads, (unsigned long long)c->head_dim,
                         (unsigned long long)KEYS_MAX_SIZE);
    return DCP_OK;
}

int model_config_read(const json_t *config, model_config *out, dcp_error *err) {
    if (!json_is_object(config))
        return core_fail(err, DCP_ERR_ARG, "model config: not a JSON object");
    const char *type = json_string_value(keys_value(config, "model_type"));
    if (!type) return core_fail(err, DCP_ERR_ARG, "model config: model_type is missing");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i].model_type, type) != 0) continue;
        int status = families[i].read(config, out, err);
        if (!status) status = keys_no_quantization(config, err);
        if (!status) status = check_heads(out, err);
        if (status) model_config_free(out);
        return status;
    }
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "model config: model_type \"%.100s\" is not supported (gpt2, llama, qwen3, "
                     "vit, mlp)",
                     type);
}

void model_config_free(model_config *c) {
    free(c->sizes);
    c->sizes = NULL;
}
