/* JSON that other programs write. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "core/json.h"

/* JSON as Python's module writes it, which is not always JSON. */

/* The bytes of a mark of UTF-8 (a BOM) before the text, which is passed over; mostly 0. */
size_t program_json_mark(const char *text, size_t bytes);

/* Of a text that was refused at `where`: the Infinity, -Infinity or NaN in that line that no JSON
 * has, with its column in *where; NULL: it was refused for another reason. */
const char *program_json_infinite(const char *text, size_t bytes, json_error_t *where);
