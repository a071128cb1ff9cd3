/* Canonical JSON over jansson; json_parse.c reads it. */
#include "core/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"

enum {
    LIBRARYS_VALUES = 8, /* of a checkpoint's meta: format, step, shard with its members */
};

/* Commas and the openings of what is not empty, outside of strings: each has a value after it. */
uint64_t core_json_count_values(const char *text, size_t bytes) {
    uint64_t n = 1;
    int in_string = 0, opened = 0; /* an opening came last */
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
            continue;
        }
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') continue;
        if (opened && c != '}' && c != ']') n++;
        opened = c == '{' || c == '[';
        in_string = c == '"';
        n += c == ',';
    }
    return n;
}

/* Text that grows. */
typedef struct json_output {
    char *text; /* NULL: there was no memory for some of it */
    size_t bytes, room;
} json_output;

static int append_output(const char *bytes, size_t n, void *ctx) {
    json_output *w = ctx;
    if (w->text && w->room - w->bytes <= n) {
        w->room = 2 * w->room + n;
        char *grown = realloc(w->text, w->room);
        if (!grown) free(w->text);
        w->text = grown;
    }
    if (!w->text) return -1;
    memcpy(w->text + w->bytes, bytes, n);
    w->bytes += n;
    w->text[w->bytes] = 0;
    return 0;
}

/* As json_dumps, which goes on where it could not write a key. */
static char *dump_text(const json_t *value, size_t flags) {
    json_output w = {.text = malloc(256), .room = 256};
    if (json_dump_callback(value, append_output, &w, flags) == 0) return w.text;
    free(w.text);
    return NULL;
}

/* No other string of a tree has a NUL. */
char *core_json_text(const json_t *value, size_t flags) {
    static const char mark[] = "\"\\u0000";
    char *text = dump_text(value, flags), *to = text ? strstr(text, mark) : NULL;
    const char *from = to;
    while (from && *from) {
        if (strncmp(from, mark, sizeof mark - 1) != 0) {
            *to++ = *from++;
            continue;
        }
        for (from += sizeof mark - 1; *from != '"';) *to++ = *from++;
        from++;
    }
    if (to) *to = 0;
    return text;
}

int core_json_parse_object(const char *text, size_t bytes, json_t **out, dcp_error *err) {
    json_error_t e;
    uint64_t values = text ? core_json_count_values(text, bytes) : 0;
    if (values > CORE_JSON_MOST_VALUES + LIBRARYS_VALUES)
        return core_fail(err, DCP_ERR_ARG,
                         "JSON: %llu values, at most %u: keep large data as tensors",
                         (unsigned long long)values, CORE_JSON_MOST_VALUES);
    json_t *value = text ? core_json_read(text, bytes, &e) : json_object();
    if (!value && !text) return core_fail_memory(err, 64);
    if (!value && json_error_code(&e) == json_error_out_of_memory)
        return core_fail_memory(err, bytes);
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

static size_t digits_of_real(double real, size_t digits) {
    char text[64];
    for (; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*g", (int)digits, real);
        if (strtod(text, NULL) == real) break;
    }
    return digits;
}

/* How many digits the reals of a value need, at least `digits`. */
static size_t digits_of_value(const json_t *value, size_t digits) {
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_real(value)) return digits_of_real(json_real_value(value), digits);
    json_array_foreach(value, i, member) digits = digits_of_value(member, digits);
    json_object_foreach((json_t *)(uintptr_t)value, key, member) digits =
        digits_of_value(member, digits);
    return digits;
}

char *core_json_exact(const json_t *value, size_t flags) {
    size_t digits = digits_of_value(value, 15);
    return core_json_text(value, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
}

char *core_json_canonical(const json_t *value) {
    return core_json_exact(value, JSON_SORT_KEYS | JSON_COMPACT);
}
