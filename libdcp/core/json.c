/* Parses JSON into jansson's trees, without jansson's own parser: if memory is short, jansson drops
 * bytes of long words and continues. Here every allocation is checked, so a lack of memory neither
 * corrupts a text nor makes it seem invalid. The accepted language (RFC 8259 without duplicate
 * keys and NUL) and the wording of the messages are the same as jansson's. */
#include "core/json.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "dcp/error.h"

enum {
    DEEPEST = 2048,
    LONG_DIGITS = 19, /* 2^63 has 19 digits, 2^64 has 20 */
};

typedef struct json_reading {
    const char *text;
    size_t at, bytes;
    int depth;
    bool is_plain; /* is_plain: accepts only integers that jansson supports */
    json_error_t *where;
} json_reading;

static int peek(const json_reading *r) {
    return r->at < r->bytes ? (unsigned char)r->text[r->at] : EOF;
}

/* Fills in r->where with the position r->at and a message. */
static json_t *refuse_text(const json_reading *r, const char *fmt, ...) DCP_PRINTF(2, 3);
static json_t *refuse_text(const json_reading *r, const char *fmt, ...) {
    json_error_t *where = r->where;
    va_list args;
    if (!where) return NULL;
    *where = (json_error_t){.line = 1, .column = 1};
    for (size_t i = 0; i < r->at; i++) {
        where->column = r->text[i] == '\n' ? 1 : where->column + 1;
        where->line += r->text[i] == '\n';
    }
    va_start(args, fmt);
    vsnprintf(where->text, sizeof where->text - 1, fmt, args); /* the last byte is an error code */
    va_end(args);
    where->text[sizeof where->text - 1] = json_error_invalid_syntax;
    return NULL;
}

static json_t *refuse_here(const json_reading *r, const char *what) {
    size_t n = 0;
    while (r->at + n < r->bytes && n < 24 && (unsigned char)r->text[r->at + n] > ' ') n++;
    if (r->at == r->bytes) return refuse_text(r, "%s near end of file", what);
    return refuse_text(r, "%s near '%.*s'", what, (int)n, r->text + r->at);
}

static json_t *lack_memory(const json_reading *r) {
    if (!r->where) return NULL;
    *r->where = (json_error_t){.line = -1, .column = -1, .text = "out of memory"};
    r->where->text[sizeof r->where->text - 1] = json_error_out_of_memory;
    return NULL;
}

static json_t *made(const json_reading *r, json_t *value) { return value ? value : lack_memory(r); }

static void skip_space(json_reading *r) {
    while (r->at < r->bytes && strchr(" \t\n\r", r->text[r->at]) && r->text[r->at]) r->at++;
}

/* Returns the value of the four hexadecimal digits at text[at]; -1 if they are not hexadecimal
 * digits. */
static int read_hex(const json_reading *r, size_t at) {
    int value = 0;
    for (size_t i = at; i < at + 4; i++) {
        const int c = i < r->bytes ? (unsigned char)r->text[i] : 0;
        if (!isxdigit(c)) return -1;
        value = 16 * value + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
}

static char *put_utf8(char *to, int c) {
    if (c < 0x80) return *to++ = (char)c, to;
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    }
    return *to++ = (char)(0x80 | (c & 0x3f)), to;
}

/* Returns the character that the \u escape at text[at] stands for; -1 if the escape is invalid.
 * *used becomes the length of the escape. */
static int read_escaped(const json_reading *r, size_t at, size_t *used) {
    const int first = read_hex(r, at + 2);
    *used = 6;
    if (first < 0xd800 || first > 0xdfff) return first ? first : -1;
    const bool is_pair =
        first < 0xdc00 && at + 12 <= r->bytes && !memcmp(r->text + at + 6, "\\u", 2);
    const int second = is_pair ? read_hex(r, at + 8) : -1;
    *used = 12;
    if (second < 0xdc00 || second > 0xdfff) return -1;
    return 0x10000 + ((first - 0xd800) << 10) + second - 0xdc00;
}

/* Returns the position of the closing quote of the string that begins at r->at; 0 if there is
 * none. */
static size_t find_end(json_reading *r) {
    for (size_t i = r->at + 1; i < r->bytes; i++) {
        const unsigned char c = (unsigned char)r->text[i];
        if (c == '"') return i;
        if (c == '\\') i++;
        if (c >= ' ') continue;
        r->at = i;
        refuse_text(r, c == '\n' ? "unexpected newline" : "control character 0x%x", c);
        return 0;
    }
    r->at = r->bytes;
    refuse_text(r, "premature end of input near end of file");
    return 0;
}

/* Copies the character of a string at r->at to `to`, and advances r->at. Returns the end of the
 * copy; NULL if the character is invalid. */
static char *copy_character(json_reading *r, char *to) {
    static const char letters[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
    unsigned char next[5] = "";
    const size_t left = r->bytes - r->at;
    memcpy(next, r->text + r->at, left < 4 ? left : 4);
    size_t used = core_utf8_length(next);
    if (!used) return refuse_text(r, "unable to decode byte 0x%x", next[0]), NULL;
    if (next[0] != '\\') {
        memcpy(to, next, used);
        to += used;
    } else if (next[1] == 'u') {
        const int c = read_escaped(r, r->at, &used);
        if (c < 0) return refuse_here(r, "invalid Unicode escape"), NULL;
        to = put_utf8(to, c);
    } else {
        const char *letter = next[1] ? strchr(letters, next[1]) : NULL;
        if (!letter) return refuse_here(r, "invalid escape"), NULL;
        *to++ = characters[letter - letters];
        used = 2;
    }
    r->at += used;
    return to;
}

/* Returns the string at r->at, malloc'd; NULL if the string is invalid or memory is short. */
static char *read_text(json_reading *r) {
    const size_t end = find_end(r);
    char *text = end ? malloc(end - r->at) : NULL, *to = text;
    if (!end) return NULL;
    if (!text) return lack_memory(r), NULL;
    for (r->at++; to && r->at < end;) to = copy_character(r, to);
    if (!to) return free(text), NULL;
    *to = 0;
    r->at = end + 1;
    return text;
}

static json_t *read_string(json_reading *r) {
    char *text = read_text(r);
    json_t *value = text ? made(r, json_string_nocheck(text)) : NULL;
    free(text);
    return value;
}

static size_t count_digits(const json_reading *r, size_t at) {
    size_t n = 0;
    while (at + n < r->bytes && r->text[at + n] >= '0' && r->text[at + n] <= '9') n++;
    return n;
}

/* Returns 1 if the integer is too large for jansson, -1 if it is too large for 64 bits, else 0. */
static int judge_integer(const char *digits, size_t n, bool negative) {
    if (n < LONG_DIGITS) return 0;
    if (n == LONG_DIGITS &&
        memcmp(digits, negative ? "9223372036854775808" : "9223372036854775807", n) <= 0)
        return 0;
    if (negative || n > LONG_DIGITS + 1) return -1;
    return n == LONG_DIGITS || memcmp(digits, "18446744073709551615", n) <= 0 ? 1 : -1;
}

/* Makes an integer from the n bytes at r->at, which include the sign. */
static json_t *make_integer(const json_reading *r, size_t n) {
    char text[LONG_DIGITS + 3] = "";
    const bool negative = r->text[r->at] == '-';
    const char *digits = r->text + r->at + negative;
    const int kind = judge_integer(digits, n - (size_t)negative, negative);
    if (kind && r->is_plain) return refuse_here(r, "too big integer");
    if (kind < 0)
        return refuse_text(
            r, "the integer %.*s%s is outside -2^63 to 2^64 - 1 (write a string or a real)",
            n > 40 ? 40 : (int)n, r->text + r->at, n > 40 ? "..." : "");
    memcpy(text + kind, r->text + r->at, n);
    return made(r,
                kind ? json_stringn_nocheck(text, n + 1) : json_integer(strtoll(text, NULL, 10)));
}

static json_t *make_real(const json_reading *r, size_t n) {
    char *text = malloc(n + 1);
    if (!text) return lack_memory(r);
    memcpy(text, r->text + r->at, n);
    text[n] = 0;
    char *point = strchr(text, '.');
    if (point) *point = *localeconv()->decimal_point;
    const double real = strtod(text, NULL);
    free(text);
    if (isinf(real)) return refuse_here(r, "real number overflow");
    return made(r, json_real(real));
}

/* Returns how many bytes of a real number follow its first n bytes. */
static size_t count_rest(const json_reading *r, size_t n) {
    const size_t begin = n;
    if (r->at + n < r->bytes && r->text[r->at + n] == '.') {
        const size_t digits = count_digits(r, r->at + n + 1);
        if (!digits) return 0;
        n += 1 + digits;
    }
    if (r->at + n < r->bytes && (r->text[r->at + n] | 0x20) == 'e') {
        const int sign = r->at + n + 1 < r->bytes ? r->text[r->at + n + 1] : 0;
        const size_t skip = sign == '+' || sign == '-' ? 2 : 1;
        const size_t digits = count_digits(r, r->at + n + skip);
        if (!digits) return 0;
        n += skip + digits;
    }
    return n - begin;
}

static json_t *read_number(json_reading *r) {
    size_t n = r->text[r->at] == '-' ? 1 : 0;
    const size_t digits = count_digits(r, r->at + n);
    if (!digits || (digits > 1 && r->text[r->at + n] == '0'))
        return refuse_here(r, "invalid token");
    n += digits;
    const size_t rest = count_rest(r, n);
    json_t *value = rest ? make_real(r, n + rest) : make_integer(r, n);
    if (value) r->at += n + rest;
    return value;
}

static json_t *read_word(json_reading *r) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (r->bytes - r->at < n || memcmp(r->text + r->at, words[i], n)) continue;
        r->at += n;
        return i == 0 ? json_true() : i == 1 ? json_false() : json_null();
    }
    return refuse_here(r, peek(r) == EOF ? "unexpected token" : "invalid token");
}

static json_t *read_value(json_reading *r);

/* Reads a key and its value into the object. Returns false if that fails. */
static bool read_member(json_reading *r, json_t *object) {
    skip_space(r);
    if (peek(r) != '"') return refuse_here(r, "string or '}' expected"), false;
    const size_t begin = r->at;
    char *key = read_text(r);
    bool is_done = false;
    if (!key) return false;
    skip_space(r);
    if (json_object_get(object, key)) {
        r->at = begin;
        refuse_here(r, "duplicate object key");
    } else if (peek(r) != ':') {
        refuse_here(r, "':' expected");
    } else {
        r->at++;
        json_t *value = read_value(r);
        is_done = value && !json_object_set_new_nocheck(object, key, value);
        if (value && !is_done) lack_memory(r);
    }
    free(key);
    return is_done;
}

static bool read_element(json_reading *r, json_t *array) {
    json_t *value = read_value(r);
    if (!value || !json_array_append_new(array, value)) return value != NULL;
    return lack_memory(r), false;
}

/* Reads an object or an array, to which `read_one` adds one member at a time. */
static json_t *read_many(json_reading *r, json_t *all, int end,
                         bool (*read_one)(json_reading *, json_t *)) {
    if (!all) return lack_memory(r);
    bool is_good = r->depth < DEEPEST;
    if (!is_good) refuse_text(r, "maximum parsing depth reached");
    r->depth++;
    r->at++;
    skip_space(r);
    bool more = is_good && peek(r) != end;
    while (more) {
        is_good = read_one(r, all);
        skip_space(r);
        more = is_good && peek(r) == ',';
        r->at += (size_t)more;
    }
    r->depth--;
    if (is_good && peek(r) == end) return r->at++, all;
    if (is_good) refuse_here(r, end == '}' ? "'}' expected" : "']' expected");
    json_decref(all);
    return NULL;
}

static json_t *read_value(json_reading *r) {
    skip_space(r);
    const int c = peek(r);
    if (c == '{') return read_many(r, json_object(), '}', read_member);
    if (c == '[') return read_many(r, json_array(), ']', read_element);
    if (c == '"') return read_string(r);
    return c == '-' || isdigit(c) ? read_number(r) : read_word(r);
}

static json_t *read_whole(json_reading *r) {
    json_t *value = read_value(r);
    skip_space(r);
    if (!value || peek(r) == EOF) return value;
    json_decref(value);
    return refuse_here(r, "end of file expected");
}

json_t *core_json_read(const char *text, size_t bytes, json_error_t *where) {
    json_reading r = {.text = text, .bytes = bytes, .where = where};
    skip_space(&r);
    if (peek(&r) != '{' && peek(&r) != '[') return refuse_here(&r, "'[' or '{' expected");
    return read_whole(&r);
}

json_t *core_json_read_value(const char *text, size_t bytes, json_error_t *where) {
    json_reading r = {.text = text, .bytes = bytes, .where = where, .is_plain = true};
    return read_whole(&r);
}

/* Canonical JSON over jansson. */

enum {
    LIBRARYS_VALUES = 8, /* in a checkpoint's meta: format, step, and shard with its members */
};

/* Outside of strings, a value follows each comma, and each bracket that opens a nonempty list or
 * object. */
uint64_t core_json_count_values(const char *text, size_t bytes) {
    uint64_t n = 1;
    /* opened: the previous character opened a list or an object */
    bool in_string = false, opened = false;
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

/* A growing text. */
typedef struct json_output {
    char *text; /* NULL: memory was short */
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

/* Like json_dumps, but returns NULL if a key could not be written; json_dumps would continue. */
static char *dump_text(const json_t *value, size_t flags) {
    json_output w = {.text = malloc(256), .room = 256};
    if (json_dump_callback(value, append_output, &w, flags) == 0) return w.text;
    free(w.text);
    return NULL;
}

/* Replaces the strings that contain a NUL by the large integers that they stand for. */
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
        return core_fail(
            err, DCP_ERR_ARG,
            "JSON: %llu values, but at most %u are possible: store large data as tensors",
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
        return core_fail(err, DCP_ERR_ARG, "JSON: an object is needed, such as {\"lr\": 0.1}");
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

/* Returns how many digits the reals of a value require, at least `digits`. */
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
