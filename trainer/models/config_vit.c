/* ViT for image classification. */
#include <string.h>

#include "models/config.h"
#include "models/keys.h"
#include "programs/fail.h"

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

static int read_sizes(const json_t *config, model_config *c, dcp_error *err) {
    const keys_entry entries[] = {
        {.key = "hidden_size", .out = &c->hidden},
        {.key = "intermediate_size", .out = &c->intermediate},
        {.key = "num_hidden_layers", .out = &c->layers, .most = KEYS_MAX_LAYERS},
        {.key = "num_attention_heads", .out = &c->heads},
        {.key = "num_channels", .absent = 3, .out = &c->channels},
    };
    int status = keys_sizes(config, entries, sizeof entries / sizeof *entries, err);
    if (status) return status;
    c->kv_heads = c->heads;
    if (!keys_value(config, "head_dim"))
        return model_config_head_dim(c, "hidden_size", "num_attention_heads", err);
    const keys_entry head_dim = {.key = "head_dim", .out = &c->head_dim};
    return keys_size(config, &head_dim, err);
}

/* The patches that fit; a convolution leaves out what is over. */
static int read_image(const json_t *config, model_config *c, dcp_error *err) {
    int status = keys_pair(config, "image_size", 224, c->image, err);
    if (!status) status = keys_pair(config, "patch_size", 16, c->patch, err);
    if (status) return status;
    for (size_t i = 0; i < 2; i++)
        if (c->patch[i] > c->image[i])
            return core_fail(err, DCP_ERR_ARG,
                             "model config: patch_size %llu is more than image_size %llu",
                             (unsigned long long)c->patch[i], (unsigned long long)c->image[i]);
    if (c->image[0] * c->image[1] > KEYS_MAX_SIZE / c->channels)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: num_channels %llu times image_size %llu x %llu is over "
                         "%llu",
                         (unsigned long long)c->channels, (unsigned long long)c->image[0],
                         (unsigned long long)c->image[1], (unsigned long long)KEYS_MAX_SIZE);
    return DCP_OK;
}

/* As many as id2label has; num_labels where that is missing; else 2. */
static int read_classes(const json_t *config, model_config *c, dcp_error *err) {
    const json_t *labels = keys_value(config, "id2label");
    if (labels && !json_is_object(labels))
        return core_fail(err, DCP_ERR_ARG, "model config: id2label is not an object");
    const uint64_t named = labels ? json_object_size(labels) : 2;
    const keys_entry classes = {.key = "num_labels", .absent = named, .out = &c->classes};
    const int status = keys_size(config, &classes, err);
    if (status) return status;
    if (labels && c->classes != named)
        return core_fail(err, DCP_ERR_ARG, "model config: num_labels is %llu, id2label names %llu",
                         (unsigned long long)c->classes, (unsigned long long)named);
    const json_t *problem = keys_value(config, "problem_type");
    const char *name = problem ? json_string_value(problem) : "single_label_classification";
    if (!name || strcmp(name, "single_label_classification") != 0)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "model config: problem_type \"%.100s\" is not supported (only "
                         "single_label_classification)",
                         name ? name : "?");
    if (c->classes == 1)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "model config: %s: one label, which is a regression, is not supported",
                         labels ? "id2label" : "num_labels");
    return DCP_OK;
}

int model_config_vit(const json_t *config, model_config *c, dcp_error *err) {
    static const char *const dropout[] = {"hidden_dropout_prob", "attention_probs_dropout_prob"};
    c->names = &vit;
    c->input = INPUT_IMAGE;
    c->layer_norm = c->o_bias = c->mlp_bias = c->head_bias = 1;
    int status = read_sizes(config, c, err);
    if (!status) status = read_image(config, c, err);
    if (!status) status = read_classes(config, c, err);
    if (!status) status = keys_flag(config, "qkv_bias", 1, &c->qkv_bias, err);
    if (!status) status = keys_number(config, "layer_norm_eps", 1e-12, 0.0, &c->norm_eps, err);
    if (!status) status = keys_number(config, "initializer_range", 0.02, 0.0, &c->init_std, err);
    if (!status) status = keys_activation(config, "hidden_act", "gelu", &c->activation, err);
    return status ? status : keys_no_dropout(config, dropout, 2, err);
}
