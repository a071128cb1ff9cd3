/* A scanner for the outermost level of an object: where strings and brackets end. It never reads
 * beyond the text. */
#include "safetensors/members.h"

#include <stdio.h>
#include <string.h>

#include "core/fail.h"
#include "core/json.h"

#define MAX_DEPTH 64
#define MAX_NAME_BYTES (64u << 10) /* as written, escapes included */

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

/* Skips spaces, and then `c` if it follows. Returns whether it did. */
static int take_char(scanner *s, char c) {
    skip_space(s);
    if (s->at == s->end || *s->at != c) return 0;
    s->at++;
    return 1;
}

/* Skips a string, from its opening quote to behind the closing one. */
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

/* Skips an array or object, from its opening bracket to behind the closing one. */
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

/* A member's name, as a JSON string. */
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
