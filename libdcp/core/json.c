/* Canonical JSON over jansson. */
#include "core/json.h"

#include <stdlib.h>

#include "core/fail.h"

int core_json_parse_object(const char *text, size_t bytes, json_t **out, dcp_error *err) {
    json_error_t e;
    json_t *value = text ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e) : json_object();
    if (!value && !text) return core_fail_memory(err, 64);
    if (!value)
        return core_fail(err, DCP_ERR_ARG, "JSON: %s at line %d, column %d", e.text, e.line,
                         e.column);
    if (!json_is_object(value)) {
        json_decref(value);
        return core_fail(err, DCP_ERR_ARG, "JSON: an object is needed, as {\"lr\": 0.1}");
    }
    *out = value;
    return DCP_OK;
}

char *core_json_exact(const json_t *value, size_t flags) {
    for (size_t digits = 15; digits <= 17; digits++) {
        char *text = json_dumps(value, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        if (!text || digits == 17) return text;
        json_t *back = json_loads(text, JSON_DECODE_ANY, NULL);
        int same = back && json_equal(back, value);
        json_decref(back);
        if (same) return text;
        free(text);
    }
    return NULL;
}

char *core_json_canonical(const json_t *value) {
    return core_json_exact(value, JSON_SORT_KEYS | JSON_COMPACT);
}
