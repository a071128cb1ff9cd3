/* Reads a Hugging Face config of a Llama or Qwen3 decoder. Defaults are those of transformers'
 * configuration classes. Keys that change the computation in a way that we don't have are refused
 * by name; all others (token ids, dtype, versions) pass. A key that is null counts as absent. */
#include "models/config.h"

#include <math.h>
#include <string.h>

#include "fail.h"

/* Largest size taken: products of two stay far from overflow, and no model comes near it. */
#define MAX_SIZE (UINT64_C(1) << 28)
#define MAX_LAYERS (UINT64_C(1) << 14)

typedef struct family {
    const char *model_type;
    int qk_norm;
    uint64_t head_dim; /* where the config has none; 0: hidden_size / num_attention_heads */
    uint64_t max_positions;
} family;

static const family families[] = {
    {.model_type = "llama", .qk_norm = 0, .head_dim = 0, .max_positions = 2048},
    {.model_type = "qwen3", .qk_norm = 1, .head_dim = 128, .max_positions = 32768},
};

/* The value of a key; NULL where it is absent or null. */
static const json_t *value_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static int find_family(const json_t *config, const family **out, dcp_error *err) {
    const char *type = json_string_value(value_of(config, "model_type"));
    if (!type) return trainer_fail(err, DCP_ERR_ARG, "model config: model_type is missing");
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(families[i].model_type, type)) {
            *out = &families[i];
            return DCP_OK;
        }
    return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                        "model config: model_type \"%.100s\" is not supported (llama, qwen3)",
                        type);
}

/* A size in 1..most; `absent` where the key is missing, 0 meaning that it is required. */
static int read_size(const json_t *config, const char *key, uint64_t absent, uint64_t most,
                     uint64_t *out, dcp_error *err) {
    const json_t *value = value_of(config, key);
    if (!value && !absent)
        return trainer_fail(err, DCP_ERR_ARG, "model config: %s is missing", key);
    if (value && !json_is_integer(value))
        return trainer_fail(err, DCP_ERR_ARG, "model config: %s is not an integer", key);
    json_int_t number = value ? json_integer_value(value) : (json_int_t)absent;
    if (number < 1 || (uint64_t)number > most)
        return trainer_fail(err, DCP_ERR_ARG,
                            "model config: %s is %" JSON_INTEGER_FORMAT ", not in 1..%llu", key,
                            number, (unsigned long long)most);
    *out = (uint64_t)number;
    return DCP_OK;
}

/* A finite number that is at least `least`; `absent` where the key is missing. */
static int read_number(const json_t *object, const char *key, double absent, double least,
                       double *out, dcp_error *err) {
    const json_t *value = value_of(object, key);
    if (value && !json_is_number(value))
        return trainer_fail(err, DCP_ERR_ARG, "model config: %s is not a number", key);
    double number = value ? json_number_value(value) : absent;
    if (!isfinite(number) || number < least)
        return trainer_fail(err, DCP_ERR_ARG, "model config: %s is %g, which is too small", key,
                            number);
    *out = number;
    return DCP_OK;
}

static int read_flag(const json_t *config, const char *key, int *out, dcp_error *err) {
    const json_t *value = value_of(config, key);
    if (value && !json_is_boolean(value))
        return trainer_fail(err, DCP_ERR_ARG, "model config: %s is neither true nor false", key);
    *out = json_is_true(value);
    return DCP_OK;
}

static int refuse_flags(const json_t *config, dcp_error *err) {
    static const char *const keys[] = {"attention_bias", "mlp_bias", "use_sliding_window"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int set = 0;
        int status = read_flag(config, keys[i], &set, err);
        if (status) return status;
        if (set)
            return trainer_fail(err, DCP_ERR_UNSUPPORTED, "model config: %s true is not supported",
                                keys[i]);
    }
    return DCP_OK;
}

/* A key whose number must be `only`, where it is given. */
static int refuse_number(const json_t *object, const char *key, double only, dcp_error *err) {
    double number = only;
    int status = read_number(object, key, only, -HUGE_VAL, &number, err);
    if (status || number == only) return status;
    return trainer_fail(err, DCP_ERR_UNSUPPORTED, "model config: %s %g is not supported (only %g)",
                        key, number, only);
}

static int refuse_layer_types(const json_t *config, dcp_error *err) {
    const json_t *types = value_of(config, "layer_types"), *type;
    size_t i;
    json_array_foreach(types, i, type) {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "full_attention"))
            return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                                "model config: layer_types: \"%.100s\" is not supported (only "
                                "full_attention)",
                                name ? name : "?");
    }
    return DCP_OK;
}

static int refuse_others(const json_t *config, dcp_error *err) {
    const json_t *activation = value_of(config, "hidden_act");
    const char *name = activation ? json_string_value(activation) : "silu";
    if (!name || strcmp(name, "silu"))
        return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                            "model config: hidden_act \"%.100s\" is not supported (only silu)",
                            name ? name : "?");
    if (value_of(config, "quantization_config"))
        return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                            "model config: quantization_config is not supported");
    int status = refuse_number(config, "attention_dropout", 0.0, err);
    return status ? status : refuse_layer_types(config, err);
}

/* rope_parameters (newer) or rope_scaling (older): only the plain rotation. */
static int check_rope(const json_t *config, const char *key, dcp_error *err) {
    const json_t *rope = value_of(config, key);
    if (!rope) return DCP_OK;
    if (!json_is_object(rope))
        return trainer_fail(err, DCP_ERR_ARG, "model config: %s is not an object", key);
    const char *member;
    json_t *value;
    json_object_foreach((json_t *)rope, member, value) {
        if (json_is_object(value))
            return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                                "model config: %s.%.100s: rotations that differ between layers "
                                "are not supported",
                                key, member);
    }
    const json_t *type = value_of(rope, "rope_type");
    type = type ? type : value_of(rope, "type");
    const char *name = type ? json_string_value(type) : "default";
    if (!name || strcmp(name, "default"))
        return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                            "model config: %s.rope_type \"%.100s\" is not supported (only default)",
                            key, name ? name : "?");
    return refuse_number(rope, "partial_rotary_factor", 1.0, err);
}

static int read_rope(const json_t *config, decoder_config *c, dcp_error *err) {
    int status = check_rope(config, "rope_parameters", err);
    if (!status) status = check_rope(config, "rope_scaling", err);
    if (!status) status = refuse_number(config, "partial_rotary_factor", 1.0, err);
    if (status) return status;
    const json_t *rope = value_of(config, "rope_parameters");
    const json_t *holder = value_of(rope, "rope_theta") ? rope : config;
    return read_number(holder, "rope_theta", 10000.0, 1.0, &c->rope_theta, err);
}

static int read_sizes(const json_t *config, const family *f, decoder_config *c, dcp_error *err) {
    const struct {
        const char *key;
        uint64_t absent, most;
        uint64_t *out;
    } sizes[] = {
        {"vocab_size", 0, MAX_SIZE, &c->vocab},
        {"hidden_size", 0, MAX_SIZE, &c->hidden},
        {"intermediate_size", 0, MAX_SIZE, &c->intermediate},
        {"num_hidden_layers", 0, MAX_LAYERS, &c->layers},
        {"num_attention_heads", 0, MAX_SIZE, &c->heads},
        {"max_position_embeddings", f->max_positions, MAX_SIZE, &c->max_positions},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int status =
            read_size(config, sizes[i].key, sizes[i].absent, sizes[i].most, sizes[i].out, err);
        if (status) return status;
    }
    return read_size(config, "num_key_value_heads", c->heads, MAX_SIZE, &c->kv_heads, err);
}

static int read_head_dim(const json_t *config, const family *f, decoder_config *c, dcp_error *err) {
    uint64_t absent = f->head_dim;
    if (!value_of(config, "head_dim") && !absent) {
        if (c->hidden % c->heads)
            return trainer_fail(err, DCP_ERR_ARG,
                                "model config: hidden_size %llu is no multiple of "
                                "num_attention_heads %llu, and head_dim is missing",
                                (unsigned long long)c->hidden, (unsigned long long)c->heads);
        absent = c->hidden / c->heads;
    }
    return read_size(config, "head_dim", absent, MAX_SIZE, &c->head_dim, err);
}

static int check_heads(const decoder_config *c, dcp_error *err) {
    if (c->heads % c->kv_heads)
        return trainer_fail(err, DCP_ERR_ARG,
                            "model config: num_attention_heads %llu is no multiple of "
                            "num_key_value_heads %llu",
                            (unsigned long long)c->heads, (unsigned long long)c->kv_heads);
    if (c->head_dim % 2)
        return trainer_fail(err, DCP_ERR_ARG, "model config: head_dim %llu is odd",
                            (unsigned long long)c->head_dim);
    if (c->heads * c->head_dim > MAX_SIZE)
        return trainer_fail(err, DCP_ERR_ARG,
                            "model config: num_attention_heads %llu times head_dim %llu is over "
                            "%llu",
                            (unsigned long long)c->heads, (unsigned long long)c->head_dim,
                            (unsigned long long)MAX_SIZE);
    return DCP_OK;
}

static int read_rest(const json_t *config, decoder_config *c, dcp_error *err) {
    int status = read_flag(config, "tie_word_embeddings", &c->tied, err);
    if (!status) status = read_number(config, "rms_norm_eps", 1e-6, 0.0, &c->norm_eps, err);
    if (!status) status = read_number(config, "initializer_range", 0.02, 0.0, &c->init_std, err);
    if (!status) status = read_rope(config, c, err);
    if (!status) status = refuse_flags(config, err);
    return status ? status : refuse_others(config, err);
}

int decoder_config_read(const json_t *config, decoder_config *out, dcp_error *err) {
    if (!json_is_object(config))
        return trainer_fail(err, DCP_ERR_ARG, "model config: not a JSON object");
    const family *f = NULL;
    int status = find_family(config, &f, err);
    if (status) return status;
    decoder_config c = {.qk_norm = f->qk_norm};
    status = read_sizes(config, f, &c, err);
    if (!status) status = read_head_dim(config, f, &c, err);
    if (!status) status = check_heads(&c, err);
    if (!status) status = read_rest(config, &c, err);
    if (status) return status;
    *out = c;
    return DCP_OK;
}
