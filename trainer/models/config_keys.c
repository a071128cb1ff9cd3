/* Collects the unsupported features of a model. Reasons that do not fit into the message are only
 * counted. If not all settings fit, the message contains none of them. */
#include "models/config_keys.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "programs/fail.h"

/* Appends `between` and `more`; only `more` if the text is empty. Returns nonzero if there is no
 * room. */
static int append_text(char *text, size_t size, const char *between, const char *more) {
    const size_t at = strlen(text), gap = at ? strlen(between) : 0;
    if (at + gap + strlen(more) >= size) return 1;
    snprintf(text + at, size - at, "%s%s", at ? between : "", more);
    return 0;
}

void model_refusals_add(model_refusals *r, const char *key, const char *value, const char *fmt,
                        ...) {
    char reason[200], override[160];
    va_list args;
    va_start(args, fmt);
    core_format(reason, sizeof reason, fmt, args);
    va_end(args);
    r->n++;
    r->told += !append_text(r->reasons, sizeof r->reasons, "; ", reason);
    if (!key) {
        r->helpless = true;
        return;
    }
    const int n = snprintf(override, sizeof override, "model.%s=%s", key, value);
    if (n < 0 || (size_t)n >= sizeof override ||
        append_text(r->overrides, sizeof r->overrides, " ", override))
        r->helpless = true;
}

int model_refusals_fail(const model_refusals *r, dcp_error *err) {
    char more[32] = "";
    if (!r->n) return DCP_OK;
    if (r->told < r->n) snprintf(more, sizeof more, "; and %zu more", r->n - r->told);
    if (r->helpless)
        return core_fail(err, DCP_ERR_UNSUPPORTED, "model config: %s%s", r->reasons, more);
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "model config: %s%s; to train without these features, add: %s", r->reasons,
                     more, r->overrides);
}

/* Reads keys of a config.json one by one. */

const json_t *model_keys_value(const model_keys *keys, const char *key) {
    const json_t *value = json_object_get(keys->object, key);
    return json_is_null(value) ? NULL : value;
}

/* Returns 0, after a message, if the value is missing or not an integer in 1..most. */
static uint64_t size_of(const model_keys *keys, const json_t *value, const char *key, uint64_t most,
                        dcp_error *err) {
    const json_int_t number = json_integer_value(value);
    if (!value)
        core_fail(err, DCP_ERR_ARG, "model config: %s%s is missing; set it to the model's value",
                  keys->path, key);
    else if (!json_is_integer(value))
        core_fail(err, DCP_ERR_ARG, "model config: %s%s is not an integer in 1..%llu", keys->path,
                  key, (unsigned long long)most);
    else if (number < 1 || (uint64_t)number > most)
        core_fail(err, DCP_ERR_ARG,
                  "model config: %s%s is %" JSON_INTEGER_FORMAT ", not in 1..%llu", keys->path, key,
                  number, (unsigned long long)most);
    else
        return (uint64_t)number;
    return 0;
}

int model_keys_size(const model_keys *keys, const keys_entry *entry, dcp_error *err) {
    const json_t *value = model_keys_value(keys, entry->key);
    const json_t *other = entry->other ? model_keys_value(keys, entry->other) : NULL;
    if (value && other && !json_equal(value, other))
        return core_fail(
            err, DCP_ERR_ARG,
            "model config: %s%s and %s are two spellings of one key, and differ; drop one",
            keys->path, entry->key, entry->other);
    if (!value && !other && entry->absent != KEYS_REQUIRED) {
        *entry->out = entry->absent;
        return DCP_OK;
    }
    const uint64_t size =
        size_of(keys, value ? value : other, value || !other ? entry->key : entry->other,
                entry->most ? entry->most : KEYS_MAX_SIZE, err);
    if (!size) return DCP_ERR_ARG;
    *entry->out = size;
    return DCP_OK;
}

int model_keys_sizes(const model_keys *keys, const keys_entry *entries, size_t n, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) status = model_keys_size(keys, &entries[i], err);
    return status;
}

int model_keys_pair(const model_keys *keys, const char *key, uint64_t absent, uint64_t out[2],
                    dcp_error *err) {
    const json_t *value = model_keys_value(keys, key);
    if (!value) {
        out[0] = out[1] = absent;
        return DCP_OK;
    }
    const bool list = json_is_array(value);
    if (list && json_array_size(value) != 2)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %s%s is neither a number nor [height, width]", keys->path,
                         key);
    uint64_t sizes[2];
    for (size_t i = 0; i < 2; i++) {
        sizes[i] = size_of(keys, list ? json_array_get(value, i) : value, key, KEYS_MAX_SIZE, err);
        if (!sizes[i]) return DCP_ERR_ARG;
    }
    memcpy(out, sizes, sizeof sizes);
    return DCP_OK;
}

int model_keys_number(const model_keys *keys, const char *key, double absent, double least,
                      double *out, dcp_error *err) {
    const json_t *value = model_keys_value(keys, key);
    if (value && !json_is_number(value))
        return core_fail(err, DCP_ERR_ARG, "model config: %s%s is not a number; give a number",
                         keys->path, key);
    const double number = value ? json_number_value(value) : absent;
    if (!isfinite(number) || number < least)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %s%s is %g, which is too small; it must be at least %g",
                         keys->path, key, number, least);
    *out = number;
    return DCP_OK;
}

int model_keys_flag(const model_keys *keys, const char *key, bool absent, bool *out,
                    dcp_error *err) {
    const json_t *value = model_keys_value(keys, key);
    if (value && !json_is_boolean(value))
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %s%s is neither true nor false; the default is %s",
                         keys->path, key, absent ? "true" : "false");
    *out = value ? json_is_true(value) : absent;
    return DCP_OK;
}

/* transformers has several names for some functions. */
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

int model_keys_activation(const model_keys *keys, const char *key, const char *absent,
                          kernels_activation *out, dcp_error *err) {
    const json_t *value = model_keys_value(keys, key);
    const char *name = value ? json_string_value(value) : absent;
    const size_t n = sizeof activation_names / sizeof *activation_names;
    if (!name)
        return core_fail(err, DCP_ERR_ARG, "model config: %s%s is not a name, such as %s",
                         keys->path, key, absent);
    size_t i = 0, usual = 0;
    while (i < n && strcmp(activation_names[i].name, name) != 0) i++;
    while (strcmp(activation_names[usual].name, absent) != 0) usual++;
    if (i == n) {
        char text[112];
        snprintf(text, sizeof text, "\"%.100s\"", name);
        model_keys_refuse(keys, key, text, "is not supported (relu, silu, gelu, gelu_new)", absent);
        i = usual;
    }
    *out = activation_names[i].f;
    return DCP_OK;
}

void model_keys_refuse(const model_keys *keys, const char *key, const char *text, const char *why,
                       const char *set) {
    char path[128];
    snprintf(path, sizeof path, "%s%s", keys->path, key);
    model_refusals_add(keys->refused, set ? path : NULL, set, "%s %s%s%s", path, text,
                       strncmp(why, "is ", 3) ? ": " : " ", why);
}

int model_keys_only_flag(const model_keys *keys, const char *key, bool only, dcp_error *err) {
    bool set = only;
    const int status = model_keys_flag(keys, key, only, &set, err);
    if (!status && set != only)
        model_keys_refuse(keys, key, set ? "true" : "false", "is not supported",
                          only ? "true" : "false");
    return status;
}

void model_keys_only_text(const model_keys *keys, const char *key, const char *only,
                          const char *set) {
    const json_t *value = model_keys_value(keys, key);
    const char *name = value ? json_string_value(value) : only;
    char text[112], why[112];
    if (name && strcmp(name, only) == 0) return;
    snprintf(text, sizeof text, "\"%.100s\"", name ? name : "?");
    snprintf(why, sizeof why, "is not supported (only %s)", only);
    model_keys_refuse(keys, key, text, why, set);
}

int model_keys_only_number(const model_keys *keys, const char *key, double only, dcp_error *err) {
    char text[32], usual[32];
    double number = only;
    const int status = model_keys_number(keys, key, only, -HUGE_VAL, &number, err);
    if (status || number == only) return status;
    snprintf(text, sizeof text, "%g", number);
    snprintf(usual, sizeof usual, "%g", only);
    model_keys_refuse(keys, key, text, "is not supported", usual);
    return DCP_OK;
}

int model_keys_no_dropout(const model_keys *keys, const char *const *names, size_t n,
                          dcp_error *err) {
    for (size_t i = 0; i < n; i++) {
        char text[32];
        double rate = 0.0;
        const int status = model_keys_number(keys, names[i], 0.0, -HUGE_VAL, &rate, err);
        if (status) return status;
        snprintf(text, sizeof text, "%g", rate);
        if (rate != 0.0) model_keys_refuse(keys, names[i], text, "dropout is not supported", "0");
    }
    return DCP_OK;
}

/* Returns text for a message: the number, or "is set" if the value is not a number. */
static const char *number_text(const json_t *value, char text[32]) {
    snprintf(text, 32, "%g", json_number_value(value));
    return json_is_number(value) ? text : "is set";
}

/* Keys that are set only in models with a feature that is not supported. */
static const struct extra {
    const char *key, *why;
} extras[] = {
    {"num_local_experts", "experts are not supported"},
    {"num_experts", "experts are not supported"},
    {"n_routed_experts", "experts are not supported"},
    {"attn_logit_softcapping", "caps on scores are not supported"},
    {"final_logit_softcapping", "caps on logits are not supported"},
};

void model_keys_no_extras(const model_keys *keys) {
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        char text[32];
        const json_t *value = model_keys_value(keys, extras[i].key);
        if (value)
            model_keys_refuse(keys, extras[i].key, number_text(value, text), extras[i].why, "null");
    }
    if (model_keys_value(keys, "quantization_config"))
        model_keys_refuse(keys, "quantization_config", "is set",
                          "quantized weights are not supported", "null");
}
