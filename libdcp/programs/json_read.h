/* JSON that other programs write. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "core/json.h"

/* JSON as Python's json module writes it, which is not always valid JSON. */

/* Returns the length of the UTF-8 byte order mark at the beginning of the text, which the caller
 * has to skip. Usually there is none, and the function returns 0. */
size_t program_json_mark(const char *text, size_t bytes);

/* Explains why jansson has refused a text at `where`. If the line of `where` contains Infinity,
 * -Infinity or NaN, which JSON does not allow, returns this word and sets where->column to its
 * column. Returns NULL if the text was refused for another reason. */
const char *program_json_infinite(const char *text, size_t bytes, json_error_t *where);
