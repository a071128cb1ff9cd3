/* Canonical JSON over jansson. */
#include "core/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"

enum {
    LIBRARYS_VALUES = 8, /* of a checkpoint's meta: format, step, shard with its members */
    LONG_DIGITS = 19,    /* of 2^63; 2^64 has one more */
    MARK_BYTES = 8,      /* what surrounds the digits of a large integer */
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

static size_t count_digits(const char *text, size_t bytes) {
    size_t n = 0;
    while (n < bytes && text[n] >= '0' && text[n] <= '9') n++;
    return n;
}

/* Whether the digits at text[at] are no part of a real. */
static int is_integer(const char *text, size_t at, size_t digits, size_t bytes) {
    const char before = at ? text[at - 1] : 0, second = at > 1 ? text[at - 2] : 0;
    const char after = at + digits < bytes ? text[at + digits] : 0;
    if (before == '-' && (second == 'e' || second == 'E')) return 0;
    return before != '.' && before != 'e' && before != 'E' && before != '+' && after != '.' &&
           after != 'e' && after != 'E';
}

/* Where the next integer of 19 digits and more is, outside of strings; *digits is its length, 0 at
 * the end of the text. *has_nul is set where a string has an escaped NUL. */
static size_t find_long_integer(const char *text, size_t at, size_t bytes, size_t *digits,
                                int *has_nul) {
    int in_string = 0;
    for (; at < bytes; at++) {
        if (text[at] == '"') in_string = !in_string;
        if (in_string && text[at] == '\\') {
            if (bytes - at > 5 && !memcmp(text + at + 1, "u0000", 5)) *has_nul = 1;
            at++;
        }
        if (in_string || !(*digits = count_digits(text + at, bytes - at))) continue;
        if (*digits >= LONG_DIGITS && text[at] != '0' && is_integer(text, at, *digits, bytes))
            return at;
        at += *digits - 1;
    }
    *digits = 0;
    return bytes;
}

/* 1: too large for jansson; -1: for 64 bits; 0: neither. */
static int judge_integer(const char *digits, size_t n, int negative) {
    if (n == LONG_DIGITS &&
        memcmp(digits, negative ? "9223372036854775808" : "9223372036854775807", n) <= 0)
        return 0;
    if (negative || n > LONG_DIGITS + 1) return -1;
    return n == LONG_DIGITS || memcmp(digits, "18446744073709551615", n) <= 0 ? 1 : -1;
}

static void tell_beyond(const char *text, size_t at, size_t n, json_error_t *where) {
    if (!where) return;
    *where = (json_error_t){.line = 1, .column = 1};
    for (size_t i = 0; i < at; i++) {
        where->column = text[i] == '\n' ? 1 : where->column + 1;
        where->line += text[i] == '\n';
    }
    snprintf(where->text, sizeof where->text,
             "the integer %.*s%s is none of -2^63 to 2^64 - 1 (write a string or a real)",
             n > 40 ? 40 : (int)n, text + at, n > 40 ? "..." : "");
}

/* Makes strings of large integers; `out` has room. 1 where that is what to parse, 0 where the text
 * itself is, -1 where an integer is beyond. */
static int mark_large_integers(const char *text, size_t bytes, char *out, size_t *out_bytes,
                               json_error_t *where) {
    size_t used = 0, digits = 0;
    int marked = 0, has_nul = 0;
    for (size_t at = 0, next; at < bytes; at = next + digits) {
        next = find_long_integer(text, at, bytes, &digits, &has_nul);
        const size_t sign = digits && next && text[next - 1] == '-';
        const int kind = digits ? judge_integer(text + next, digits, sign != 0) : 0;
        if (kind < 0) {
            tell_beyond(text, next - sign, digits + sign, where);
            return -1;
        }
        memcpy(out + used, text + at, next - at);
        used += next - at;
        used += (size_t)sprintf(out + used, kind ? "\"\\u0000%.*s\"" : "%.*s", (int)digits,
                                text + next);
        marked |= kind;
    }
    *out_bytes = used;
    return marked && !has_nul;
}

json_t *core_json_read(const char *text, size_t bytes, json_error_t *where) {
    size_t digits, marked_bytes = 0;
    int has_nul;
    if (find_long_integer(text, 0, bytes, &digits, &has_nul) == bytes)
        return json_loadb(text, bytes, JSON_REJECT_DUPLICATES, where);
    char *marked = malloc(bytes + (bytes / LONG_DIGITS + 1) * MARK_BYTES + 1);
    if (where) *where = (json_error_t){.text = "out of memory"};
    if (!marked) return NULL;
    json_t *value = NULL;
    int use = mark_large_integers(text, bytes, marked, &marked_bytes, where);
    if (use >= 0)
        value = json_loadb(use ? marked : text, use ? marked_bytes : bytes,
                           JSON_REJECT_DUPLICATES | (use ? JSON_ALLOW_NUL : 0), where);
    free(marked);
    return value;
}

/* No other string of a tree has a NUL. */
char *core_json_text(const json_t *value, size_t flags) {
    static const char mark[] = "\"\\u0000";
    char *text = json_dumps(value, flags), *to = text ? strstr(text, mark) : NULL;
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
