/* Scans the outermost level of a JSON object: finds the ends of strings and brackets. Never reads
 * beyond the text. */
#include "safetensors/header.h"

#include <endian.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "core/json.h"
#include "dcp/safetensors.h"

#define MAX_DEPTH 64
#define MAX_NAME_BYTES (64u << 10) /* as written, including escapes */

typedef struct scanner {
    const char *what, *text, *at, *end;
    dcp_error *err;
} scanner;

static int refuse(const scanner *s, const char *why) {
    return core_fail(s->err, DCP_ERR_CORRUPT, "%s is not JSON: %s at byte %llu", s->what, why,
                     (unsigned long long)(s->at - s->text));
}

static void skip_space(scanner *s) {
    while (s->at < s->end && memchr(" \t\r\n", *s->at, 4)) s->at++;
}

/* Skips spaces, and then `c` if it follows. Returns true if `c` followed. */
static bool take_char(scanner *s, char c) {
    skip_space(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

/* Skips a string, from its opening quote to the character after the closing one. */
static int skip_string(scanner *s) {
    const char *start = s->at++;
    for (; s->at < s->end && *s->at != '"'; s->at++)
        if (*s->at == '\\' && s->at + 1 < s->end) s->at++;
    if (s->at < s->end) {
        s->at++;
        return DCP_OK;
    }
    s->at = start;
    return refuse(s, "a string without end");
}

/* Skips an array or object, from its opening bracket to the character after the closing one. */
static int skip_brackets(scanner *s) {
    const char *start = s->at;
    for (int depth = 0; s->at < s->end;) {
        char c = *s->at;
        if (c == '"') {
            int status = skip_string(s);
            if (status) return status;
            continue;
        }
        s->at++;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        if (depth == 0) return DCP_OK;
        if (depth > MAX_DEPTH) return refuse(s, "nested too deep");
    }
    s->at = start;
    return refuse(s, "a bracket without end");
}

static int skip_value(scanner *s, safetensors_value *out) {
    skip_space(s);
    const char *start = s->at;
    int status = DCP_OK;
    if (s->at < s->end && *s->at == '"')
        status = skip_string(s);
    else if (s->at < s->end && (*s->at == '{' || *s->at == '['))
        status = skip_brackets(s);
    else
        while (s->at < s->end && !memchr(",}] \t\r\n", *s->at, 7)) s->at++;
    if (status == DCP_OK && s->at == start) status = refuse(s, "a value is missing");
    *out = (safetensors_value){start, (uint64_t)(s->at - start)};
    return status;
}

/* Reads a member's name as a JSON string. */
static int read_name(scanner *s, json_t **out) {
    skip_space(s);
    if (s->at == s->end || *s->at != '"') return refuse(s, "a name is missing");
    const char *start = s->at;
    int status = skip_string(s);
    if (status) return status;
    safetensors_value text = {start, (uint64_t)(s->at - start)};
    char what[ST_WHAT];
    snprintf(what, sizeof what, "%s: the name at byte %llu", s->what,
             (unsigned long long)(start - s->text));
    return safetensors_value_parse(what, text, MAX_NAME_BYTES, out, s->err);
}

static int visit_member(scanner *s, safetensors_visit visit, void *ctx) {
    json_t *name;
    safetensors_value value;
    int status = read_name(s, &name);
    if (status) return status;
    if (!take_char(s, ':'))
        status = refuse(s, "':' is missing");
    else
        status = skip_value(s, &value);
    if (status == DCP_OK) status = visit(ctx, json_string_value(name), value, s->err);
    json_decref(name);
    return status;
}

int safetensors_members_visit(const char *what, safetensors_value text, safetensors_visit visit,
                              void *ctx, dcp_error *err) {
    scanner s = {what, text.text, text.text, text.text + text.bytes, err};
    if (!take_char(&s, '{')) return refuse(&s, "no object");
    if (!take_char(&s, '}')) {
        do {
            int status = visit_member(&s, visit, ctx);
            if (status) return status;
        } while (take_char(&s, ','));
        if (!take_char(&s, '}')) return refuse(&s, "',' or '}' is missing");
    }
    skip_space(&s);
    return s.at == s.end ? DCP_OK : refuse(&s, "more text after the object,");
}

int safetensors_value_parse(const char *what, safetensors_value value, uint64_t max_bytes,
                            json_t **out, dcp_error *err) {
    json_error_t where;
    if (value.bytes > max_bytes)
        return core_fail(err, DCP_ERR_CORRUPT, "%s has %llu bytes of JSON, more than %llu", what,
                         (unsigned long long)value.bytes, (unsigned long long)max_bytes);
    *out = core_json_read_value(value.text, value.bytes, &where);
    if (*out) return DCP_OK;
    if (json_error_code(&where) == json_error_out_of_memory)
        return core_fail_memory(err, value.bytes);
    return core_fail(err, DCP_ERR_CORRUPT, "%s is not JSON: %s", what, where.text);
}

/* Parses safetensors headers.
 *
 * A header is not trusted until it has been checked here. After safetensors_header_parse, the
 * tensors' data cover the file's data exactly, each byte once, shapes agree with sizes, and names
 * are valid in a checkpoint. */

#define MAX_ENTRY_BYTES (4u << 10)    /* JSON: a tensor's dtype, shape and offsets */
#define MAX_METADATA_BYTES (4u << 20) /* JSON, which becomes at most 160 MB in jansson */

static int parse_size(const json_t *value, uint64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return -1;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int parse_dtype(const char *path, const char *name, const json_t *value, dcp_dtype *out,
                       dcp_error *err) {
    const char *text = json_string_value(value);
    if (!text) return core_fail_at(err, DCP_ERR_CORRUPT, path, "tensor '%s' has no dtype", name);
    const int status = dcp_dtype_parse(text, out);
    if (status == DCP_ERR_UNSUPPORTED)
        return core_fail_at(err, status, path,
                            "tensor '%s' is of %s, a type of safetensors that libdcp does not "
                            "support; convert it first, for example to F8_E4M3 or BF16",
                            name, text);
    if (status != DCP_OK || *out == DCP_C128)
        return core_fail_at(err, DCP_ERR_UNSUPPORTED, path,
                            "tensor '%s' has the unknown dtype '%s'", name, text);
    return DCP_OK;
}

static int parse_shape(const char *path, const char *name, const json_t *value, dcp_tensor *out,
                       dcp_error *err) {
    if (!json_is_array(value))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "tensor '%s' has no shape", name);
    if (json_array_size(value) > DCP_MAX_DIMS)
        return core_fail_at(err, DCP_ERR_UNSUPPORTED, path,
                            "tensor '%s' has %zu dimensions, more than %d", name,
                            json_array_size(value), DCP_MAX_DIMS);
    out->ndim = (uint32_t)json_array_size(value);
    for (uint32_t d = 0; d < out->ndim; d++)
        if (parse_size(json_array_get(value, d), &out->shape[d]))
            return core_fail_at(err, DCP_ERR_CORRUPT, path,
                                "tensor '%s': dimension %u of its shape is not a size", name, d);
    return DCP_OK;
}

/* Counts the bytes of the tensor's data: 0 if a size is 0, however large the others are. Returns -1
 * if the number of bytes does not fit into an int64. dtype and ndim must be valid. */
static int count_bytes(const dcp_tensor *tensor, uint64_t *out) {
    uint64_t bytes = dcp_dtype_bytes(tensor->dtype);
    for (uint32_t d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] == 0) {
            *out = 0;
            return 0;
        }
    for (uint32_t d = 0; d < tensor->ndim; d++)
        if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes)) return -1;
    *out = bytes;
    return bytes > INT64_MAX ? -1 : 0;
}

static int parse_offsets(const char *path, const char *name, const json_t *value,
                         uint64_t data_bytes, safetensors_entry *out, dcp_error *err) {
    if (json_array_size(value) != 2 || parse_size(json_array_get(value, 0), &out->begin) ||
        parse_size(json_array_get(value, 1), &out->end) || out->begin > out->end)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "tensor '%s': data_offsets are not [begin, end]", name);
    if (out->end > data_bytes)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "tensor '%s' ends at byte %llu of the data, which has only %llu: "
                            "truncated?",
                            name, (unsigned long long)out->end, (unsigned long long)data_bytes);
    uint64_t bytes;
    if (count_bytes(&out->tensor, &bytes))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "tensor '%s': its shape overflows", name);
    if (bytes != out->end - out->begin)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "tensor '%s' has %llu bytes according to its shape, but %llu according "
                            "to its data_offsets",
                            name, (unsigned long long)bytes,
                            (unsigned long long)(out->end - out->begin));
    return DCP_OK;
}

/* A name becomes a component of a tensor's path in a checkpoint, and of an HDF5 path. */
static int check_name(const char *path, const char *name, dcp_error *err) {
    const char *why = NULL;
    if (!*name)
        why = "is empty";
    else if (strchr(name, '/'))
        why = "holds a '/'";
    else if (!strcmp(name, ".") || !strcmp(name, ".."))
        why = "stands for a folder";
    else if (strlen(name) > DCP_MAX_PATH)
        why = "is too long";
    if (!why) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, path, "the tensor name '%.100s' of %zu bytes %s",
                        name, strlen(name), why);
}

static int parse_entry(const char *path, const char *name, const json_t *value, uint64_t data_bytes,
                       safetensors_entry *out, dcp_error *err) {
    if (!json_is_object(value) || json_object_size(value) != 3)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "tensor '%s' is not {dtype, shape, data_offsets}", name);
    int status = parse_dtype(path, name, json_object_get(value, "dtype"), &out->tensor.dtype, err);
    if (status == DCP_OK)
        status = parse_shape(path, name, json_object_get(value, "shape"), &out->tensor, err);
    if (status == DCP_OK)
        status =
            parse_offsets(path, name, json_object_get(value, "data_offsets"), data_bytes, out, err);
    if (status != DCP_OK) return status;
    out->tensor.path = strdup(name);
    return out->tensor.path ? DCP_OK : core_fail_memory(err, strlen(name) + 1);
}

static int check_metadata(const char *path, json_t *value, dcp_error *err) {
    const char *key;
    json_t *text;
    if (!json_is_object(value))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "__metadata__ is not an object");
    json_object_foreach(value, key, text) {
        if (!json_is_string(text))
            return core_fail_at(err, DCP_ERR_CORRUPT, path, "__metadata__ '%s' is not a string",
                                key);
    }
    return DCP_OK;
}

static int compare_u64(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static int compare_places(const void *a, const void *b) {
    const safetensors_entry *x = a, *y = b;
    int order = compare_u64(x->begin, y->begin);
    return order ? order : compare_u64(x->end, y->end);
}

int safetensors_entry_compare(const void *a, const void *b) {
    return strcmp(((const safetensors_entry *)a)->tensor.path,
                  ((const safetensors_entry *)b)->tensor.path);
}

/* `entries` is sorted by place. */
static int check_cover(const char *path, const safetensors_entry *entries, size_t n,
                       uint64_t data_bytes, dcp_error *err) {
    uint64_t covered = 0;
    for (size_t i = 0; i < n; i++) {
        if (entries[i].begin < covered)
            return core_fail_at(err, DCP_ERR_CORRUPT, path, "tensors '%s' and '%s' overlap",
                                entries[i - 1].tensor.path, entries[i].tensor.path);
        if (entries[i].begin > covered)
            return core_fail_at(err, DCP_ERR_CORRUPT, path,
                                "a hole of %llu bytes before tensor '%s', at byte %llu of the data",
                                (unsigned long long)(entries[i].begin - covered),
                                entries[i].tensor.path, (unsigned long long)covered);
        covered = entries[i].end;
    }
    if (covered != data_bytes)
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "%llu bytes after the last tensor",
                            (unsigned long long)(data_bytes - covered));
    return DCP_OK;
}

void safetensors_entries_free(safetensors_entry *entries, size_t n) {
    for (size_t i = 0; i < n; i++) free((char *)(uintptr_t)entries[i].tensor.path);
    free(entries);
}

typedef struct header_parser {
    const char *path;
    uint64_t data_bytes;
    safetensors_entry *entries;
    size_t n, room;
    bool has_metadata;
} header_parser;

static int grow_entries(header_parser *p, dcp_error *err) {
    if (p->n == ST_MAX_TENSORS)
        return core_fail_at(err, DCP_ERR_UNSUPPORTED, p->path, "more than %u tensors",
                            ST_MAX_TENSORS);
    if (p->n < p->room) return DCP_OK;
    size_t room = p->room ? 2 * p->room : 64;
    safetensors_entry *grown = core_array_grow(p->entries, room, sizeof *grown);
    if (!grown) return core_fail_memory(err, room * sizeof *grown);
    p->entries = grown;
    p->room = room;
    return DCP_OK;
}

static int take_metadata(header_parser *p, safetensors_value value, dcp_error *err) {
    char what[ST_WHAT];
    json_t *json;
    if (p->has_metadata)
        return core_fail_at(err, DCP_ERR_CORRUPT, p->path, "duplicate __metadata__");
    p->has_metadata = true;
    snprintf(what, sizeof what, "%s: __metadata__", p->path);
    int status = safetensors_value_parse(what, value, MAX_METADATA_BYTES, &json, err);
    if (status != DCP_OK) return status;
    status = check_metadata(p->path, json, err);
    json_decref(json);
    return status;
}

static int parse_member(void *ctx, const char *name, safetensors_value value, dcp_error *err) {
    header_parser *p = ctx;
    char what[ST_WHAT];
    json_t *json;
    if (strcmp(name, "__metadata__") == 0) return take_metadata(p, value, err);
    int status = check_name(p->path, name, err);
    if (status == DCP_OK) status = grow_entries(p, err);
    if (status != DCP_OK) return status;
    snprintf(what, sizeof what, "%s: tensor '%s'", p->path, name);
    status = safetensors_value_parse(what, value, MAX_ENTRY_BYTES, &json, err);
    if (status != DCP_OK) return core_fail_tensor(status, name, err);
    memset(&p->entries[p->n], 0, sizeof *p->entries);
    status = parse_entry(p->path, name, json, p->data_bytes, &p->entries[p->n], err);
    if (status == DCP_OK) p->n++;
    json_decref(json);
    return core_fail_tensor(status, name, err);
}

/* `entries` is sorted by name. */
static int check_names(const char *path, const safetensors_entry *entries, size_t n,
                       dcp_error *err) {
    for (size_t i = 1; i < n; i++)
        if (strcmp(entries[i - 1].tensor.path, entries[i].tensor.path) == 0)
            return core_fail_at(err, DCP_ERR_CORRUPT, path, "duplicate tensor '%s'",
                                entries[i].tensor.path);
    return DCP_OK;
}

/* Duplicate names are reported before wrong offsets, because duplicates make the offsets wrong as
 * well. */
static int check_entries(const header_parser *p, dcp_error *err) {
    if (!p->n) return check_cover(p->path, p->entries, 0, p->data_bytes, err);
    qsort(p->entries, p->n, sizeof *p->entries, safetensors_entry_compare);
    int status = check_names(p->path, p->entries, p->n, err);
    if (status != DCP_OK) return status;
    qsort(p->entries, p->n, sizeof *p->entries, compare_places);
    status = check_cover(p->path, p->entries, p->n, p->data_bytes, err);
    qsort(p->entries, p->n, sizeof *p->entries, safetensors_entry_compare);
    return status;
}

int safetensors_header_parse(const char *path, const char *json, uint64_t bytes,
                             uint64_t data_bytes, safetensors_entry **out, size_t *n_out,
                             dcp_error *err) {
    char what[ST_WHAT];
    header_parser p = {.path = path, .data_bytes = data_bytes};
    if (bytes == 0 || json[0] != '{')
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "the header does not begin with '{'");
    snprintf(what, sizeof what, "%s: the header", path);
    int status =
        safetensors_members_visit(what, (safetensors_value){json, bytes}, parse_member, &p, err);
    core_fail_path(status, path, err);
    if (status == DCP_OK) status = check_entries(&p, err);
    if (status != DCP_OK) {
        safetensors_entries_free(p.entries, p.n);
        return status;
    }
    *out = p.entries;
    *n_out = p.n;
    return DCP_OK;
}

static json_t *entry_json(const dcp_tensor *tensor, uint64_t begin, uint64_t end) {
    json_t *shape = json_array();
    for (uint32_t d = 0; d < tensor->ndim; d++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dcp_dtype_name(tensor->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static int format_tensor(json_t *root, const dcp_tensor *tensor, uint64_t *offset, dcp_error *err) {
    uint64_t bytes, end;
    if (!tensor->path || !dcp_dtype_name(tensor->dtype) || tensor->ndim > DCP_MAX_DIMS)
        return core_fail(
            err, DCP_ERR_ARG,
            "safetensors: a tensor has no name, or an invalid dtype or number of dimensions");
    if (tensor->dtype == DCP_C128)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "safetensors has no type for C128, the type of '%s': write HDF5 "
                         "(dcp-export --format hdf5), or load it as C64",
                         tensor->path);
    if (count_bytes(tensor, &bytes) || __builtin_add_overflow(*offset, bytes, &end) ||
        end > INT64_MAX)
        return core_fail(err, DCP_ERR_ARG, "safetensors: the size of '%s' overflows", tensor->path);
    if (json_object_get(root, tensor->path))
        return core_fail(err, DCP_ERR_ARG, "safetensors: the name '%s' is used twice or reserved",
                         tensor->path);
    if (!core_utf8_is_valid(tensor->path, strlen(tensor->path)))
        return core_fail(err, DCP_ERR_ARG, "safetensors: the name '%s' is not UTF-8", tensor->path);
    if (json_object_set_new(root, tensor->path, entry_json(tensor, *offset, end)))
        return core_fail_memory(err, strlen(tensor->path));
    *offset = end;
    return DCP_OK;
}

static int frame(const char *text, char **out, uint64_t *bytes_out, dcp_error *err) {
    uint64_t length = strlen(text), padded = (length + 7) / 8 * 8, le = htole64(padded);
    if (padded > ST_MAX_HEADER)
        return core_fail(err, DCP_ERR_ARG,
                         "safetensors: the header would have %llu bytes, more than %u: use several "
                         "files",
                         (unsigned long long)padded, ST_MAX_HEADER);
    char *header = malloc(ST_PREFIX_BYTES + padded);
    if (!header) return core_fail_memory(err, ST_PREFIX_BYTES + padded);
    memcpy(header, &le, sizeof le);
    memcpy(header + ST_PREFIX_BYTES, text, length);
    memset(header + ST_PREFIX_BYTES + length, ' ', padded - length);
    *out = header;
    *bytes_out = ST_PREFIX_BYTES + padded;
    return DCP_OK;
}

int dcp_st_header(const dcp_tensor *tensors, size_t n, char **out, uint64_t *bytes,
                  dcp_error *err) {
    if (!out || !bytes || (n && !tensors))
        return core_fail(err, DCP_ERR_ARG, "dcp_st_header: tensors, out or bytes is NULL");
    uint64_t offset = 0;
    int status = DCP_OK;
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (size_t i = 0; status == DCP_OK && i < n; i++)
        status = format_tensor(root, &tensors[i], &offset, err);
    if (status == DCP_OK) {
        char *text = core_json_text(root, JSON_COMPACT);
        status = text ? frame(text, out, bytes, err) : core_fail_memory(err, n * 100);
        free(text);
    }
    json_decref(root);
    return status;
}
