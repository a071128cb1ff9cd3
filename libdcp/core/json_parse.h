/* Reading JSON text into jansson's trees. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* jansson's integers end at 2^63 - 1. This one, and core_json_text, read and write those up to
 * 2^64 - 1 as well: in the tree such a one is a string, a NUL and its digits, which no other string
 * is. Else it is as json_loadb with JSON_REJECT_DUPLICATES. An integer beyond -2^63 to 2^64 - 1 is
 * refused. *where may be NULL; its json_error_code is json_error_out_of_memory where memory was
 * short, whatever was to be allocated, else json_error_invalid_syntax. */
json_t *core_json_read(const char *text, size_t bytes, json_error_t *where);

/* The same of any value by itself, whose integers are jansson's. */
json_t *core_json_read_value(const char *text, size_t bytes, json_error_t *where);
