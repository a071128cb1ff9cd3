/* Two words of layer_types are known; without it all layers from a first one on slide. */
#include "models/windows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

enum { USUAL_WINDOW = 4096 };

/* transformers ignores the keys in such a family, and whoever set them expects something else. */
static int refuse_window(const model_keys *keys, dcp_error *err) {
    char text[32];
    const json_t *window = model_keys_value(keys, "sliding_window");
    const int status = model_keys_only_flag(keys, "use_sliding_window", 0, err);
    if (!window || json_is_false(model_keys_value(keys, "use_sliding_window"))) return status;
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(window));
    model_keys_refuse(keys, "sliding_window", text, "windows are not supported in this family",
                      "null");
    return status;
}

/* The tokens that a layer with a window sees; 0: no layer has one. */
static int read_window(const model_keys *keys, model_windows_of family, uint64_t *window,
                       dcp_error *err) {
    static const char key[] = "sliding_window";
    int on = 1;
    *window = 0;
    if (family == MODEL_WINDOWS_NEVER) return refuse_window(keys, err);
    if (family == MODEL_WINDOWS_ASKED) {
        const int status = model_keys_flag(keys, "use_sliding_window", 0, &on, err);
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

/* One word of layer_types. */
static int read_layer(const model_keys *keys, model_windows_of family, const json_t *type,
                      int *slides) {
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

/* windows[layers] from layer_types, up to a word that is refused. */
static int read_types(const model_keys *keys, model_windows_of family, uint64_t window,
                      uint64_t layers, uint64_t *windows, dcp_error *err) {
    const json_t *types = model_keys_value(keys, "layer_types"), *type;
    size_t i;
    int slides;
    if (!json_is_array(types))
        return core_fail(
            err, DCP_ERR_ARG,
            "model config: %slayer_types is not a list; name each layer's, or leave it out",
            keys->path);
    if (json_array_size(types) != layers)
        return core_fail(
            err, DCP_ERR_ARG,
            "model config: %slayer_types names %zu layers, num_hidden_layers is %llu; make "
            "them agree, or leave layer_types out",
            keys->path, json_array_size(types), (unsigned long long)layers);
    json_array_foreach(types, i, type) {
        if (read_layer(keys, family, type, &slides)) return DCP_OK;
        if (slides && !window)
            return core_fail(err, DCP_ERR_ARG,
                             "model config: %slayer_types has sliding_attention, but there is no "
                             "window%s; set it",
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
