/* Keys of a config.json, one by one. */
#include "models/keys.h"

#include <math.h>
#include <string.h>

#include "programs/fail.h"

const json_t *model_keys_value(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* 0 where the value is missing or no integer in 1..most, after a message. */
static uint64_t size_of(const json_t *value, const char *key, uint64_t most, dcp_error *err) {
    const json_int_t number = json_integer_value(value);
    if (!value)
        core_fail(err, DCP_ERR_ARG, "model config: %s is missing", key);
    else if (!json_is_integer(value))
        core_fail(err, DCP_ERR_ARG, "model config: %s is not an integer", key);
    else if (number < 1 || (uint64_t)number > most)
        core_fail(err, DCP_ERR_ARG, "model config: %s is %" JSON_INTEGER_FORMAT ", not in 1..%llu",
                  key, number, (unsigned long long)most);
    else
        return (uint64_t)number;
    return 0;
}

int model_keys_size(const json_t *config, const keys_entry *entry, dcp_error *err) {
    const json_t *value = model_keys_value(config, entry->key);
    const json_t *other = entry->other ? model_keys_value(config, entry->other) : NULL;
    if (value && other && !json_equal(value, other))
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %s and %s are two spellings of one key, and differ",
                         entry->key, entry->other);
    if (!value && !other && entry->absent != KEYS_REQUIRED) {
        *entry->out = entry->absent;
        return DCP_OK;
    }
    const uint64_t size =
        size_of(value ? value : other, value || !other ? entry->key : entry->other,
                entry->most ? entry->most : KEYS_MAX_SIZE, err);
    if (!size) return DCP_ERR_ARG;
    *entry->out = size;
    return DCP_OK;
}

int model_keys_sizes(const json_t *config, const keys_entry *entries, size_t n, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) status = model_keys_size(config, &entries[i], err);
    return status;
}

int model_keys_pair(const json_t *config, const char *key, uint64_t absent, uint64_t out[2],
                    dcp_error *err) {
    const json_t *value = model_keys_value(config, key);
    if (!value) {
        out[0] = out[1] = absent;
        return DCP_OK;
    }
    const int list = json_is_array(value);
    if (list && json_array_size(value) != 2)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %s is neither a number nor [height, width]", key);
    uint64_t sizes[2];
    for (size_t i = 0; i < 2; i++) {
        sizes[i] = size_of(list ? json_array_get(value, i) : value, key, KEYS_MAX_SIZE, err);
        if (!sizes[i]) return DCP_ERR_ARG;
    }
    memcpy(out, sizes, sizeof sizes);
    return DCP_OK;
}

int model_keys_number(const json_t *object, const char *key, double absent, double least,
                      double *out, dcp_error *err) {
    const json_t *value = model_keys_value(object, key);
    if (value && !json_is_number(value))
        return core_fail(err, DCP_ERR_ARG, "model config: %s is not a number", key);
    const double number = value ? json_number_value(value) : absent;
    if (!isfinite(number) || number < least)
        return core_fail(err, DCP_ERR_ARG, "model config: %s is %g, which is too small", key,
                         number);
    *out = number;
    return DCP_OK;
}

int model_keys_flag(const json_t *config, const char *key, int absent, int *out, dcp_error *err) {
    const json_t *value = model_keys_value(config, key);
    if (value && !json_is_boolean(value))
        return core_fail(err, DCP_ERR_ARG, "model config: %s is neither true nor false", key);
    *out = value ? json_is_true(value) : absent;
    return DCP_OK;
}

/* transformers has several names for one function. */
static const struct activation_name {
    const char *name;
    kernels_activation f;
} activation_names[] = {
    {"relu", KERNELS_RELU},
    {"silu", KERNELS_SILU},
    {"swish", KERNELS_SILU},
    {"gelu", KERNELS_GELU},
    {"gelu_python", KERNELS_GELU},
    {"gelu_new", KERNELS_GELU_TANH},
    {"gelu_pytorch_tanh", KERNELS_GELU_TANH},
    {"gelu_fast", KERNELS_GELU_TANH},
    {"gelu_accurate", KERNELS_GELU_TANH},
};

int model_keys_activation(const json_t *config, const char *key, const char *absent,
                          kernels_activation *out, dcp_error *err) {
    const json_t *value = model_keys_value(config, key);
    const char *name = value ? json_string_value(value) : absent;
    if (!name) return core_fail(err, DCP_ERR_ARG, "model config: %s is not a name", key);
    for (size_t i = 0; i < sizeof activation_names / sizeof *activation_names; i++)
        if (!strcmp(activation_names[i].name, name)) {
            *out = activation_names[i].f;
            return DCP_OK;
        }
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "model config: %s \"%.100s\" is not supported (relu, silu, gelu, gelu_new)",
                     key, name);
}

int model_keys_only_flag(const json_t *config, const char *key, int only, dcp_error *err) {
    int set = only;
    const int status = model_keys_flag(config, key, only, &set, err);
    if (status || set == only) return status;
    return core_fail(err, DCP_ERR_UNSUPPORTED, "model config: %s %s is not supported", key,
                     set ? "true" : "false");
}

int model_keys_only_number(const json_t *object, const char *key, double only, dcp_error *err) {
    double number = only;
    const int status = model_keys_number(object, key, only, -HUGE_VAL, &number, err);
    if (status || number == only) return status;
    return core_fail(err, DCP_ERR_UNSUPPORTED, "model config: %s %g is not supported (only %g)",
                     key, number, only);
}

int model_keys_no_dropout(const json_t *config, const char *const *keys, size_t n, dcp_error *err) {
    for (size_t i = 0; i < n; i++) {
        double rate = 0.0;
        const int status = model_keys_number(config, keys[i], 0.0, -HUGE_VAL, &rate, err);
        if (status) return status;
        if (rate != 0.0)
            return core_fail(err, DCP_ERR_UNSUPPORTED,
                             "model config: %s %g: dropout is not supported; set it to 0 to "
                             "train without",
                             keys[i], rate);
    }
    return DCP_OK;
}

int model_keys_no_quantization(const json_t *config, dcp_error *err) {
    if (!model_keys_value(config, "quantization_config")) return DCP_OK;
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "model config: quantization_config is not supported");
}
