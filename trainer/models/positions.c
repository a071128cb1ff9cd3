/* The formulas are the same as in transformers' modeling_rope_utils.py, including its roundings to
 * fp32, because models were trained with them. */
#include "models/positions.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

static const char *const type_names[] = {[MODEL_ROPE_DEFAULT] = "default",
                                         [MODEL_ROPE_LINEAR] = "linear",
                                         [MODEL_ROPE_LLAMA3] = "llama3",
                                         [MODEL_ROPE_YARN] = "yarn"};

static void read_type(const model_keys *rope, model_rope_type *out) {
    const json_t *newer = model_keys_value(rope, "rope_type");
    const json_t *value = newer ? newer : model_keys_value(rope, "type");
    const char *name = value ? json_string_value(value) : "default";
    char text[112];
    for (size_t i = 0; name && i < sizeof type_names / sizeof *type_names; i++)
        if (!strcmp(type_names[i], name)) {
            *out = (model_rope_type)i;
            return;
        }
    snprintf(text, sizeof text, "\"%.100s\"", name ? name : "?");
    model_keys_refuse(rope, "rope_type", text,
                      "is not supported (only default, linear, llama3, yarn)", "default");
}

/* Reads the number of positions of the first training. The config's own key takes precedence over
 * the key of the object `rope`. */
static int read_positions(const model_keys *keys, const model_keys *rope, uint64_t max_positions,
                          double *out, dcp_error *err) {
    static const char key[] = "original_max_position_embeddings";
    const model_keys *holder = model_keys_value(keys, key) ? keys : rope;
    return model_keys_number(holder, key, (double)max_positions, 1.0, out, err);
}

/* Reads a number above 0, which is required if `absent` is 0. */
static int read_positive(const model_keys *rope, const char *key, double absent, double *out,
                         dcp_error *err) {
    if (absent == 0.0 && !model_keys_value(rope, key))
        return core_fail(err, DCP_ERR_ARG, "model config: %s%s is missing; this rope_type needs it",
                         rope->path, key);
    return model_keys_number(rope, key, absent, 1e-9, out, err);
}

static int read_llama3(const model_keys *rope, model_rope *out, dcp_error *err) {
    int status = read_positive(rope, "low_freq_factor", 0.0, &out->seldom, err);
    if (!status) status = read_positive(rope, "high_freq_factor", 0.0, &out->often, err);
    if (status || out->often > out->seldom) return status;
    return core_fail(
        err, DCP_ERR_ARG,
        "model config: %shigh_freq_factor %g is not above low_freq_factor %g; set it higher",
        rope->path, out->often, out->seldom);
}

/* Reads a number for which 0 counts as absent, as in transformers. */
static int read_or(const model_keys *rope, const char *key, double absent, double *out,
                   dcp_error *err) {
    const int status = model_keys_number(rope, key, absent, 0.0, out, err);
    if (*out == 0.0) *out = absent;
    return status;
}

/* The factor by which attention is sharpened for `factor` times as many positions. */
static double sharpness(double factor, double by) {
    return factor <= 1.0 ? 1.0 : 0.1 * by * log(factor) + 1.0;
}

static int read_yarn(const model_keys *rope, model_rope *out, dcp_error *err) {
    double by = 0.0, by_all = 0.0;
    int status = read_or(rope, "beta_slow", 1.0, &out->seldom, err);
    if (!status) status = read_or(rope, "beta_fast", 32.0, &out->often, err);
    if (!status) status = model_keys_flag(rope, "truncate", true, &out->whole, err);
    if (!status) status = model_keys_number(rope, "mscale", 0.0, 0.0, &by, err);
    if (!status) status = model_keys_number(rope, "mscale_all_dim", 0.0, 0.0, &by_all, err);
    if (status) return status;
    const double usual = by != 0.0 && by_all != 0.0
                             ? sharpness(out->factor, by) / sharpness(out->factor, by_all)
                             : sharpness(out->factor, 1.0);
    return read_positive(rope, "attention_factor", usual, &out->scale, err);
}

static int read_scaling(const model_keys *keys, const model_keys *rope, uint64_t max_positions,
                        model_rope *out, dcp_error *err) {
    double usual = 0.0; /* the factor is required */
    int status = DCP_OK;
    if (out->type == MODEL_ROPE_DEFAULT) return DCP_OK;
    if (out->type != MODEL_ROPE_LINEAR)
        status = read_positions(keys, rope, max_positions, &out->positions, err);
    if (out->type == MODEL_ROPE_YARN) usual = (double)max_positions / out->positions;
    if (!status) status = read_positive(rope, "factor", usual, &out->factor, err);
    if (status || out->type == MODEL_ROPE_LINEAR) return status;
    return out->type == MODEL_ROPE_YARN ? read_yarn(rope, out, err) : read_llama3(rope, out, err);
}

/* Returns true, after a refusal, if the object contains another object for each type of layer. */
static bool is_nested(const model_keys *rope) {
    const char *member;
    json_t *value;
    json_object_foreach((json_t *)rope->object, member, value) if (json_is_object(value)) {
        model_refusals_add(rope->refused, NULL, NULL,
                           "%s%.100s: rotations that differ between layers are not supported",
                           rope->path, member);
        return true;
    }
    return false;
}

int model_rope_read(const model_keys *keys, uint64_t max_positions, model_rope *out,
                    dcp_error *err) {
    char path[128];
    const char *key = "rope_scaling";
    const json_t *older = model_keys_value(keys, key);
    if (!older || (json_is_object(older) && !json_object_size(older))) key = "rope_parameters";
    snprintf(path, sizeof path, "%s%s.", keys->path, key);
    const model_keys rope = {model_keys_value(keys, key), path, keys->refused};
    if (rope.object && !json_is_object(rope.object))
        return core_fail(
            err, DCP_ERR_ARG,
            "model config: %s%s is not an object, such as {\"rope_type\": \"default\"}", keys->path,
            key);
    *out = (model_rope){.theta = 10000.0, .factor = 1.0, .scale = 1.0};
    if (is_nested(&rope)) return DCP_OK;
    read_type(&rope, &out->type);
    const model_keys *holder = model_keys_value(&rope, "rope_theta") ? &rope : keys;
    int status = model_keys_number(holder, "rope_theta", 10000.0, 1.0, &out->theta, err);
    if (!status) status = model_keys_only_number(&rope, "partial_rotary_factor", 1.0, err);
    if (!status) status = model_keys_only_number(keys, "partial_rotary_factor", 1.0, err);
    return status ? status : read_scaling(keys, &rope, max_positions, out, err);
}

static float slow_down_seldom(const model_rope *r, float frequency) {
    const float wave = (float)(2.0 * M_PI) / frequency;
    const float turns = (float)r->positions / wave, seldom = (float)r->seldom;
    const float often = (float)r->often, factor = (float)r->factor;
    if (wave > (float)(r->positions / r->seldom)) return frequency / factor;
    if (wave < (float)(r->positions / r->often)) return frequency;
    const float left = (turns - seldom) / (often - seldom);
    return (1.0f - left) * frequency / factor + left * frequency;
}

/* Returns the index of the pair, in a head of `dim` elements, that makes `turns` turns within the
 * positions of the first training. */
static double pair_of_turns(const model_rope *r, double turns, double dim) {
    return dim * log(r->positions / (turns * 2.0 * M_PI)) / (2.0 * log(r->theta));
}

/* Computes two bounds. The frequencies of pairs between them are slowed down gradually; the
 * frequencies of later pairs are slowed down completely. */
static void yarn_bounds(const model_rope *r, size_t dim, double *first, double *last) {
    *first = pair_of_turns(r, r->often, (double)dim);
    *last = pair_of_turns(r, r->seldom, (double)dim);
    if (r->whole) {
        *first = floor(*first);
        *last = ceil(*last);
    }
    *first = fmax(*first, 0.0);
    *last = fmin(*last, (double)dim - 1.0);
    if (*first == *last) *last += 0.001;
}

static void yarn_frequencies(const model_rope *r, size_t dim, float *out) {
    double first, last;
    yarn_bounds(r, dim, &first, &last);
    for (size_t i = 0; i < dim / 2; i++) {
        const float power = (float)pow(r->theta, 2.0 * (double)i / (double)dim);
        const float along = ((float)i - (float)first) / (float)(last - first);
        const float left = 1.0f - fminf(fmaxf(along, 0.0f), 1.0f);
        const float slow = 1.0f / ((float)r->factor * power), fast = 1.0f / power;
        out[i] = slow * (1.0f - left) + fast * left;
    }
}

void model_rope_frequencies(const model_rope *r, size_t dim, float *out) {
    if (r->type == MODEL_ROPE_YARN) {
        yarn_frequencies(r, dim, out);
        return;
    }
    for (size_t i = 0; i < dim / 2; i++) {
        out[i] = (float)(1.0 / pow(r->theta, 2.0 * (double)i / (double)dim));
        if (r->type == MODEL_ROPE_LINEAR) out[i] /= (float)r->factor;
        if (r->type == MODEL_ROPE_LLAMA3) out[i] = slow_down_seldom(r, out[i]);
    }
}

/* layer_types contains one of two words for each layer. Without this key, the layer that read_first
 * returns and all layers after it have a window. */

enum { USUAL_WINDOW = 4096 };

/* In families that never have windows, transformers ignores the keys of windows, but a user who
 * sets them expects a window. */
static int refuse_window(const model_keys *keys, dcp_error *err) {
    char text[32];
    const json_t *window = model_keys_value(keys, "sliding_window");
    const int status = model_keys_only_flag(keys, "use_sliding_window", false, err);
    if (!window || json_is_false(model_keys_value(keys, "use_sliding_window"))) return status;
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(window));
    model_keys_refuse(keys, "sliding_window", text, "windows are not supported in this family",
                      "null");
    return status;
}

/* The number of tokens that a layer with a window sees; 0: no layer has a window. */
static int read_window(const model_keys *keys, model_windows_of family, uint64_t *window,
                       dcp_error *err) {
    static const char key[] = "sliding_window";
    bool on = true;
    *window = 0;
    if (family == MODEL_WINDOWS_NEVER) return refuse_window(keys, err);
    if (family == MODEL_WINDOWS_ASKED) {
        const int status = model_keys_flag(keys, "use_sliding_window", false, &on, err);
        if (status) return status;
    }
    const json_t *given = json_object_get(keys->object, key);
    if (!on || json_is_null(given)) return DCP_OK;
    const keys_entry entry = {.key = key, .absent = USUAL_WINDOW, .out = window};
    return model_keys_size(keys, &entry, err);
}

/* The first layer that has the window. */
static int read_first(const model_keys *keys, model_windows_of family, double *first,
                      dcp_error *err) {
    *first = 0.0;
    if (family != MODEL_WINDOWS_ASKED) return DCP_OK;
    return model_keys_number(keys, "max_window_layers", 28.0, 0.0, first, err);
}

/* Reads one word of layer_types. */
static int read_layer(const model_keys *keys, model_windows_of family, const json_t *type,
                      bool *slides) {
    char text[112];
    const char *name = json_string_value(type);
    *slides = family != MODEL_WINDOWS_NEVER && name && !strcmp(name, "sliding_attention");
    if (*slides || (name && !strcmp(name, "full_attention"))) return DCP_OK;
    snprintf(text, sizeof text, "\"%.100s\"", name ? name : "?");
    model_keys_refuse(keys, "layer_types", text,
                      family == MODEL_WINDOWS_NEVER
                          ? "is not supported (only full_attention)"
                          : "is not supported (only full_attention, sliding_attention)",
                      "null");
    return DCP_ERR_UNSUPPORTED;
}

/* Fills windows[layers] from layer_types; stops at a word that is refused. */
static int read_types(const model_keys *keys, model_windows_of family, uint64_t window,
                      uint64_t layers, uint64_t *windows, dcp_error *err) {
    const json_t *types = model_keys_value(keys, "layer_types"), *type;
    size_t i;
    bool slides;
    if (!json_is_array(types))
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %slayer_types is not a list; name each layer's type, or "
                         "leave layer_types out",
                         keys->path);
    if (json_array_size(types) != layers)
        return core_fail(err, DCP_ERR_ARG,
                         "model config: %slayer_types names %zu layers, but num_hidden_layers is "
                         "%llu; make the two equal, or leave layer_types out",
                         keys->path, json_array_size(types), (unsigned long long)layers);
    json_array_foreach(types, i, type) {
        if (read_layer(keys, family, type, &slides)) return DCP_OK;
        if (slides && !window)
            return core_fail(err, DCP_ERR_ARG,
                             "model config: %slayer_types has sliding_attention, but there is no "
                             "window%s; set one",
                             keys->path,
                             family == MODEL_WINDOWS_ASKED ? " (use_sliding_window, sliding_window)"
                                                           : " (sliding_window)");
        windows[i] = slides ? window : 0;
    }
    return DCP_OK;
}

int model_windows_read(const model_keys *keys, model_windows_of family, uint64_t layers,
                       uint64_t **out, dcp_error *err) {
    uint64_t window = 0, any = 0;
    double first = 0.0;
    int status = read_window(keys, family, &window, err);
    if (!status) status = read_first(keys, family, &first, err);
    if (status) return status;
    uint64_t *windows = calloc(layers, sizeof *windows);
    if (!windows) return core_fail_memory(err, layers * sizeof *windows);
    if (model_keys_value(keys, "layer_types"))
        status = read_types(keys, family, window, layers, windows, err);
    else
        for (uint64_t i = 0; i < layers; i++) windows[i] = (double)i >= first ? window : 0;
    for (uint64_t i = 0; i < layers; i++) any |= windows[i];
    if (any && !status)
        *out = windows;
    else
        free(windows);
    return status;
}
