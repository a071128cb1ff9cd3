/* Reading JSON text into jansson's trees. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

/* jansson's integers end at 2^63 - 1. This one, and core_json_text, read and write those up to
 * 2^64 - 1 as well: in the tree such a one is a string, a NUL and its digits, which no other string
 * is. Else it is as json_loadb with JSON_REJECT_DUPLICATES. An integer beyond -2^63 to 2^64 - 1 is
 * refused. *where may be NULL; its json_error_code is json_error_out_of_memory where memory was
 * short, whatever was to be allocated, else json_error_invalid_syntax. */
json_t *core_json_read(const char *text, size_t bytes, json_error_t *where);

/* The same of any value by itself, whose integers are jansson's. */
json_t *core_json_read_value(const char *text, size_t bytes, json_error_t *where);

/* The JSON text of a checkpoint, in one canonical form: equal values give equal bytes. */

/* Values of one text at most: objects, arrays, strings, numbers, true, false and null at any depth,
 * but not the keys. An empty object of one byte takes 350 in memory. */
#define CORE_JSON_MOST_VALUES (1u << 20)

/* How many values a JSON text has; of what is no JSON, any number. */
uint64_t core_json_count_values(const char *text, size_t bytes);

/* As json_dumps, with core_json_read's large integers; malloc'd. NULL: out of memory. */
char *core_json_text(const json_t *value, size_t flags);

/* Parses one JSON object (duplicate keys refused); NULL text gives an empty one. More than
 * CORE_JSON_MOST_VALUES and a few that the library adds are refused before there is memory for any.
 * The caller releases *out with json_decref. DCP_ERR_ARG: it is none; DCP_ERR_NO_MEMORY. */
int core_json_parse_object(const char *text, size_t bytes, json_t **out, dcp_error *err);

/* Reals have the fewest of 15, 16 or 17 digits with which every real of the text reads back as the
 * same number. `flags` are jansson's. malloc'd; NULL: out of memory. Makes no second tree. */
char *core_json_exact(const json_t *value, size_t flags);

/* The same with sorted keys and no spaces. */
char *core_json_canonical(const json_t *value);

/* UTF-8, as RFC 3629 has it. */

/* The length of the character at `s`, which a NUL ends at the latest; 0 where it is malformed. */
static inline size_t core_utf8_length(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    if (s[0] >= 0xf5) n = 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    int overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    int beyond = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

static inline int core_utf8_is_valid(const char *text, size_t length) {
    unsigned char any = 0;
    for (size_t i = 0; i < length; i++) any |= (unsigned char)text[i];
    if (any < 0x80) return 1;
    for (size_t i = 0, n; i < length; i += n)
        if (!(n = core_utf8_length((const unsigned char *)text + i))) return 0;
    return 1;
}
