/* `key.path=value` on the command line. The value is JSON where it parses as such, else a string;
 * where the key takes a string it is the text itself, so that `data.path=2024` works. */
#include "config/override.h"

#include <stdlib.h>
#include <string.h>

#include "config/jsonfile.h"
#include "config/schema.h"
#include "programs/fail.h"

int config_set(json_t *tree, const char *path, json_t *value) {
    const char *dot = strchr(path, '.');
    if (!dot) return json_object_set_new(tree, path, value);
    const size_t length = (size_t)(dot - path);
    json_t *child = json_object_getn(tree, path, length);
    if (!child) {
        child = json_object();
        json_object_setn_new(tree, path, length, child);
    }
    if (json_is_object(child)) return config_set(child, dot + 1, value);
    json_decref(value);
    return -1;
}

/* NULL: not UTF-8, or *duplicate is set. */
static json_t *parse_value(const char *path, const char *text, int *duplicate) {
    const config_key *key = config_key_find(path);
    json_error_t where;
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &where);
    const int text_asked = key && key->type == CONFIG_TEXT;
    *duplicate = !value && !text_asked && json_error_code(&where) == json_error_duplicate_key;
    if (*duplicate) return NULL;
    if (value && text_asked && !json_is_string(value) && !json_is_null(value)) {
        json_decref(value);
        value = NULL;
    }
    return value ? value : json_string(text);
}

/* What an override of a key of the model changes: the object behind the path. */
static int open_model(json_t *tree, dcp_error *err) {
    json_t *model = json_object_get(tree, "model");
    if (!json_is_string(model)) return DCP_OK;
    const int status = config_resolve_model(model, &model, err);
    if (status == DCP_OK) json_object_set_new(tree, "model", model);
    return status;
}

int config_override(json_t *tree, const char *assignment, dcp_error *err) {
    if (strncmp(assignment, "model.", 6) == 0) {
        const int status = open_model(tree, err);
        if (status != DCP_OK) return status;
    }
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return core_fail(err, DCP_ERR_ARG, "\"%.300s\" is not of the form key.path=value",
                         assignment);
    char *path = strndup(assignment, (size_t)(equals - assignment));
    if (!path) return core_fail_memory(err, strlen(assignment));
    int duplicate, status = DCP_OK;
    json_t *value = parse_value(path, equals + 1, &duplicate);
    if (duplicate)
        status = core_fail(err, DCP_ERR_ARG, "%.300s: a key in it is given twice", path);
    else if (!value)
        status = core_fail(err, DCP_ERR_ARG, "%.300s: the value is not UTF-8", path);
    else if (config_set(tree, path, value) != 0)
        status = core_fail(err, DCP_ERR_ARG,
                           "%.300s: a part of this path is set to a value without keys", path);
    free(path);
    return status;
}
