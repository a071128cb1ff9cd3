#include "config/sources.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "programs/fail.h"

static bool is_weight(const json_t *value) {
    const double weight = json_number_value(value);
    return json_is_number(value) && weight > 0 && weight <= 1e6;
}

static int check_source(const char *path, size_t i, const json_t *entry, dcp_error *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(entry))
        return core_fail(err, DCP_ERR_ARG,
                         "%s[%zu]: not an object; an object with keys is required", path, i);
    json_object_foreach((json_t *)entry, key, value) {
        const bool is_path = strcmp(key, "path") == 0;
        if (!is_path && strcmp(key, "weight") != 0)
            return core_fail(
                err, DCP_ERR_ARG,
                "%s[%zu].%.100s: unknown key; the keys of a source are path and weight", path, i,
                key);
        if (is_path ? json_string_length(value) == 0 : !is_weight(value))
            return core_fail(err, DCP_ERR_ARG, "%s[%zu].%s is not %s", path, i, key,
                             is_path ? "a non-empty string" : "a number above 0, up to 1e6");
        char what[96];
        snprintf(what, sizeof what, "%s[%zu].path", path, i);
        if (is_path && core_path_check(what, json_string_value(value), err))
            return DCP_ERR_UNSUPPORTED;
    }
    if (json_object_get(entry, "path")) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "%s[%zu].path: missing; it has no default: set it", path, i);
}

int config_sources_check(const char *path, const json_t *list, dcp_error *err) {
    const size_t n = json_array_size(list);
    int status = DCP_OK;
    if (n > CONFIG_MAX_SOURCES)
        return core_fail(err, DCP_ERR_ARG, "%s: %zu sources; at most %d are possible", path, n,
                         CONFIG_MAX_SOURCES);
    for (size_t i = 0; i < n && status == DCP_OK; i++)
        status = check_source(path, i, json_array_get(list, i), err);
    return status;
}

size_t config_sources_fill(const json_t *list, config_source *out) {
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(list, i), *weight = json_object_get(entry, "weight");
        out[i] = (config_source){json_string_value(json_object_get(entry, "path")),
                                 weight ? json_number_value(weight) : 1};
    }
    return n;
}
