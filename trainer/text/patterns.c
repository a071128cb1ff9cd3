/* Regular expressions are written for Oniguruma in Ruby's syntax. What PCRE2 would take otherwise
 * is written anew (\s, \w, names of scripts) or refused (sets within sets, \h). */
#include "text/patterns.h"

#include <stdio.h>
#include <string.h>

#include "programs/fail.h"
#include "text/buffer.h"

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}" /* \w within [] */

struct text_pattern {
    pcre2_code *code;
};

static int compile(const text_part *part, const char *pattern, size_t bytes, uint32_t options,
                   const char *shown, text_pattern **out, dcp_error *err) {
    int error;
    size_t offset;
    unsigned char text[128];
    text_pattern *p = malloc(sizeof *p);
    if (!p) return core_fail_memory(err, sizeof *p);
    p->code = pcre2_compile((PCRE2_SPTR)pattern, bytes, options | PCRE2_UTF, &error, &offset, NULL);
    if (!p->code) {
        free(p);
        pcre2_get_error_message(error, text, sizeof text);
        return text_part_fail(part, DCP_ERR_ARG, err, "the pattern %s: %s", shown, (char *)text);
    }
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* where it cannot, matching is just slower */
    *out = p;
    return DCP_OK;
}

void text_pattern_close(text_pattern *p) {
    if (p) pcre2_code_free(p->code);
    free(p);
}

int text_pattern_of_string(const text_part *part, const char *string, text_pattern **out,
                           dcp_error *err) {
    if (!*string) return text_part_fail(part, DCP_ERR_ARG, err, "the pattern is empty");
    return compile(part, string, strlen(string), PCRE2_LITERAL, string, out, err);
}

static int is_script(const char *name, size_t bytes) {
    char pattern[64];
    int error;
    size_t offset;
    if (bytes < 3 || bytes > 40) return 0; /* a category */
    snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)bytes, name);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

static int put(text_buffer *out, const char *text) {
    return text_buffer_put(out, text, strlen(text));
}

/* What follows a \; returns how many bytes that were, 0 where it is refused. */
static size_t put_escape(const char *at, int in_set, text_buffer *out) {
    const char *close = at[1] == '{' ? strchr(at, '}') : NULL;
    if (!*at || strchr("hHKQEGRXW", *at)) {
        if (*at != 'W' || in_set) return 0;
        return put(out, "[^" WORD "]") ? 1 : 0;
    }
    if (*at == 's') return put(out, "\\p{White_Space}") ? 1 : 0;
    if (*at == 'S') return put(out, "\\P{White_Space}") ? 1 : 0;
    if (*at == 'w') return put(out, in_set ? WORD : "[" WORD "]") ? 1 : 0;
    if ((*at == 'p' || *at == 'P') && close) {
        const int negated = at[2] == '^';
        const size_t name = 2 + (size_t)negated, bytes = (size_t)(close - at) - name;
        const int sc = is_script(at + name, bytes);
        const int ok = put(out, (*at == 'p') != negated ? "\\p{" : "\\P{") &&
                       put(out, sc ? "sc:" : "") && text_buffer_put(out, at + name, bytes + 1);
        return ok ? (size_t)(close - at) + 1 : 0;
    }
    const char pair[3] = {'\\', *at};
    return put(out, pair) ? 1 : 0;
}

/* One character within [], or a whole [:class:]; 0 where it is refused. */
static size_t put_in_set(const char *at, text_buffer *out) {
    const char *close = at[0] == '[' && at[1] == ':' ? strstr(at, ":]") : NULL;
    const size_t bytes = close ? (size_t)(close - at) + 2 : 1;
    if ((*at == '[' && !close) || (at[0] == '&' && at[1] == '&')) return 0;
    return text_buffer_put(out, at, bytes) ? bytes : 0;
}

static int translate(const text_part *part, const char *regex, text_buffer *out, dcp_error *err) {
    const char *set = NULL; /* where the set began that this is in */
    for (const char *at = regex; *at;) {
        size_t taken;
        if (*at == '\\') {
            taken = put_escape(at + 1, set != NULL, out);
            taken += taken > 0;
        } else if (set && (*at != ']' || at == set)) {
            taken = put_in_set(at, out);
        } else if (at[0] == '}' && at[1] == '+') { /* possessive here, not there */
            taken = 0;
        } else {
            taken = (size_t)text_buffer_put(out, at, 1);
            set = *at == '[' ? at + 1 + (at[1] == '^') : NULL;
            if (set && at[1] == '^' && text_buffer_put(out, "^", 1)) taken = 2;
        }
        if (!taken)
            return text_part_fail(part, DCP_ERR_UNSUPPORTED, err,
                                  "the pattern %s has what is not supported, from %.12s on", regex,
                                  at);
        at += taken;
    }
    return DCP_OK;
}

int text_pattern_open(const text_part *part, const char *regex, text_pattern **out,
                      dcp_error *err) {
    text_buffer translated = {0};
    int status = translate(part, regex, &translated, err);
    if (!status)
        status = compile(part, translated.at ? translated.at : "", translated.bytes,
                         PCRE2_UCP | PCRE2_MULTILINE, regex, out, err);
    free(translated.at);
    return status;
}

int text_pattern_read(const text_part *part, text_pattern **out, dcp_error *err) {
    const char *text;
    const text_part pattern = {part->file, part->key, part->type,
                               json_object_get(part->value, "pattern")};
    const int is_regex = json_object_get(pattern.value, "Regex") != NULL;
    if (!json_is_object(pattern.value))
        return text_part_fail(part, DCP_ERR_ARG, err, "pattern is not an object");
    const int status = text_part_string(&pattern, is_regex ? "Regex" : "String", NULL, &text, err);
    if (status) return status;
    return (is_regex ? text_pattern_open : text_pattern_of_string)(part, text, out, err);
}

int text_pattern_next(const text_pattern *p, pcre2_match_data *found, const char *text, size_t n,
                      size_t at, size_t *start, size_t *end, dcp_error *err) {
    unsigned char message[128];
    int got = pcre2_match(p->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, found, NULL);
    if (got == PCRE2_ERROR_JIT_STACKLIMIT)
        got = pcre2_match(p->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          found, NULL);
    if (got == PCRE2_ERROR_NOMATCH) return 0;
    if (got < 0) {
        pcre2_get_error_message(got, message, sizeof message);
        return core_fail(err, DCP_ERR_ARG,
                         "the tokenizer's pattern gives up at byte %zu of a part of %zu bytes: %s",
                         at, n, (char *)message);
    }
    const size_t *where = pcre2_get_ovector_pointer(found);
    *start = where[0] < where[1] ? where[0] : where[1]; /* \K is refused, not in a lookahead */
    *end = where[1];
    return 1;
}
