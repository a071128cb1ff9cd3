/* Follows paths part by part. Values are shared, not copied. */
#include "config/json_tree.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/program.h"

#define MAX_BYTES ((size_t)2 << 20) /* so jansson's tree stays below 200 MB */

/* Returns true if the parser refused text that is valid JSON. */
static bool is_json(const json_error_t *error) {
    const enum json_error_code code = json_error_code(error);
    return code == json_error_duplicate_key || code == json_error_numeric_overflow;
}

/* Returns the format of another program's configuration file, judged by the end of the path; NULL
 * if the format is unknown. */
static const char *other_kind(const char *path) {
    static const char *const kinds[][2] = {
        {".yaml", "YAML"}, {".yml", "YAML"}, {".toml", "TOML"}, {".py", "Python"}};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(dot, kinds[i][0]) == 0) return kinds[i][1];
    return NULL;
}

static int fail_place(const char *path, const char *text, size_t bytes, json_error_t *where,
                      dcp_error *err) {
    const char *word = is_json(where) ? NULL : program_json_infinite(text, bytes, where);
    if (word)
        return core_fail(err, DCP_ERR_ARG,
                         "%s:%d:%d: %s, which Python writes, is not a JSON number; give a finite "
                         "one, or leave the key out",
                         path, where->line, where->column, word);
    if (other_kind(path))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: is %s, but a configuration must be JSON, with the keys of "
                         "dcp-train.json(5) or of DeepSpeed",
                         path, other_kind(path));
    return core_fail(err, DCP_ERR_ARG, "%s:%d:%d: %s%s; correct it there", path, where->line,
                     where->column, is_json(where) ? "" : "not JSON: ", where->text);
}

static int parse_text(const char *path, const char *text, size_t bytes, json_t **out,
                      dcp_error *err) {
    json_error_t where;
    const size_t mark = program_json_mark(text, bytes);
    *out = json_loadb(text + mark, bytes - mark, JSON_REJECT_DUPLICATES, &where);
    return *out ? DCP_OK : fail_place(path, text + mark, bytes - mark, &where, err);
}

/* The file may be a pipe, so its size is known only after reading it. */
static int parse(FILE *file, const char *path, json_t **out, dcp_error *err) {
    char *text = malloc(MAX_BYTES + 1);
    if (!text) return core_fail_memory(err, MAX_BYTES + 1);
    const size_t bytes = fread(text, 1, MAX_BYTES + 1, file);
    int status = DCP_OK;
    if (ferror(file))
        status = core_fail(err, DCP_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    else if (bytes > MAX_BYTES)
        status = core_fail(err, DCP_ERR_ARG,
                           "%s: has more than %zu bytes, the limit for a configuration", path,
                           MAX_BYTES);
    else
        status = parse_text(path, text, bytes, out, err);
    free(text);
    return status;
}

int config_json_read(const char *path, json_t **out, dcp_error *err) {
    FILE *file = fopen(path, "re");
    struct stat st;
    if (file && fstat(fileno(file), &st) == 0 && S_ISDIR(st.st_mode)) {
        fclose(file);
        return core_fail(err, DCP_ERR_ARG, "%s: is a directory; a JSON file is required", path);
    }
    if (!file)
        return core_fail(err, program_path_is_wrong(errno) ? DCP_ERR_NOT_FOUND : DCP_ERR_IO,
                         "%s: cannot read: %s; give an existing JSON file", path, strerror(errno));
    json_t *object = NULL;
    const int status = parse(file, path, &object, err);
    fclose(file);
    if (status != DCP_OK) return status;
    if (!json_is_object(object)) {
        json_decref(object);
        return core_fail(err, DCP_ERR_ARG,
                         "%s: does not contain a JSON object, such as {\"key\": \"value\"}", path);
    }
    *out = object;
    return DCP_OK;
}

json_t *config_json_at(const json_t *tree, const char *path) {
    const json_t *node = tree;
    for (const char *from = path;; from++) {
        const size_t length = strcspn(from, ".");
        node = json_object_getn(node, from, length);
        from += length;
        if (!node || *from == '\0') return (json_t *)node;
    }
}

int config_json_set(json_t *tree, const char *path, json_t *value) {
    const char *dot = strchr(path, '.');
    if (!dot) return json_object_set_new(tree, path, value);
    const size_t length = (size_t)(dot - path);
    json_t *child = json_object_getn(tree, path, length);
    if (!child) {
        child = json_object();
        json_object_setn_new(tree, path, length, child);
    }
    if (json_is_object(child)) return config_json_set(child, dot + 1, value);
    json_decref(value);
    return -1;
}
