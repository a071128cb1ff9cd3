/* Reading JSON files. Duplicate keys are refused: one of the two values would be lost in silence.
 */
#include "config/jsonfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "programs/fail.h"

/* What is refused although it is JSON. */
static int is_json(const json_error_t *error) {
    const enum json_error_code code = json_error_code(error);
    return code == json_error_duplicate_key || code == json_error_numeric_overflow;
}

int config_read_object(const char *path, json_t **out, dcp_error *err) {
    FILE *file = fopen(path, "re");
    struct stat st;
    if (file && fstat(fileno(file), &st) == 0 && S_ISDIR(st.st_mode)) {
        fclose(file);
        return core_fail(err, DCP_ERR_ARG, "%s: is a directory, a JSON file is asked for", path);
    }
    if (!file)
        return core_fail(err, DCP_ERR_NOT_FOUND, "%s: cannot read: %s", path, strerror(errno));
    json_error_t where;
    json_t *object = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
    fclose(file);
    if (!object)
        return core_fail(err, DCP_ERR_ARG, "%s:%d:%d: %s%s", path, where.line, where.column,
                         is_json(&where) ? "" : "not JSON: ", where.text);
    if (!json_is_object(object)) {
        json_decref(object);
        return core_fail(err, DCP_ERR_ARG, "%s: holds no JSON object", path);
    }
    *out = object;
    return DCP_OK;
}

int config_resolve_model(json_t *model, json_t **out, dcp_error *err) {
    const char *given = json_string_value(model);
    if (!given) {
        *out = json_incref(model);
        return DCP_OK;
    }
    char path[4096];
    struct stat st;
    const int folder = stat(given, &st) == 0 && S_ISDIR(st.st_mode);
    const int n = snprintf(path, sizeof path, "%s%s", given, folder ? "/config.json" : "");
    if (n < 0 || (size_t)n >= sizeof path)
        return core_fail(err, DCP_ERR_ARG, "model: the path is too long");
    dcp_error why;
    const int status = config_read_object(path, out, &why);
    return status == DCP_OK ? DCP_OK : core_fail(err, status, "model: %s", why.message);
}
