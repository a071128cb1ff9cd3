/* JSON: parsing into jansson's trees, and canonical text. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

/* Parses JSON. jansson's integers end at 2^63 - 1. This function and core_json_text support
 * integers up to 2^64 - 1: in the tree, an integer above 2^63 - 1 is a string that consists of a
 * NUL and the digits. No other string of a tree contains a NUL. Refuses integers outside -2^63 to
 * 2^64 - 1. Otherwise works like json_loadb with JSON_REJECT_DUPLICATES. `where` may be NULL. On
 * failure, the json_error_code of `where` is json_error_out_of_memory if an allocation failed,
 * otherwise json_error_invalid_syntax. */
json_t *core_json_read(const char *text, size_t bytes, json_error_t *where);

/* Like core_json_read, but accepts any single value, and refuses integers that jansson does not
 * support. */
json_t *core_json_read_value(const char *text, size_t bytes, json_error_t *where);

/* The JSON text of a checkpoint, in one canonical form: equal values give equal bytes. */

/* The maximum number of values in a text: objects, arrays, strings, numbers, true, false and null
 * at any depth, but not keys. An empty object is two bytes of text, but uses 350 bytes of
 * memory. */
#define CORE_JSON_MOST_VALUES (1u << 20)

/* Returns the number of values in a JSON text; for a text that is not JSON, the result is
 * meaningless. */
uint64_t core_json_count_values(const char *text, size_t bytes);

/* Like json_dumps, but also writes core_json_read's large integers. The text is malloc'd. NULL: out
 * of memory. */
char *core_json_text(const json_t *value, size_t flags);

/* Parses one JSON object and refuses duplicate keys; a NULL text gives an empty object. Refuses
 * more than CORE_JSON_MOST_VALUES values, plus a few that the library adds, before it allocates
 * memory for them. The caller releases *out with json_decref. Returns DCP_ERR_ARG if the text is
 * not an object, or DCP_ERR_NO_MEMORY. */
int core_json_parse_object(const char *text, size_t bytes, json_t **out, dcp_error *err);

/* Returns the text of a value, in which all reals have the same number of digits: the smallest of
 * 15, 16 and 17 with which each of them reads back as the same number. `flags` are jansson's. The
 * text is malloc'd; NULL: out of memory. Does not copy the tree. */
char *core_json_exact(const json_t *value, size_t flags);

/* Like core_json_exact, but sorts keys and writes no spaces. */
char *core_json_canonical(const json_t *value);

/* UTF-8, according to RFC 3629. */

/* Returns the length of the character at `s`; 0 if it is malformed. The text must end with a
 * NUL. */
static inline size_t core_utf8_length(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    if (s[0] >= 0xf5) n = 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool beyond = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

static inline bool core_utf8_is_valid(const char *text, size_t length) {
    unsigned char any = 0;
    for (size_t i = 0; i < length; i++) any |= (unsigned char)text[i];
    if (any < 0x80) return true;
    for (size_t i = 0, n; i < length; i += n)
        if (!(n = core_utf8_length((const unsigned char *)text + i))) return false;
    return true;
}
