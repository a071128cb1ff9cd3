/* JSON that other programs write. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "core/json.h"

/* JSON as Python's json module writes it, which is not always valid JSON. */

/* Returns the length of a UTF-8 byte order mark before the text, which is to be skipped; usually
 * 0. */
size_t program_json_mark(const char *text, size_t bytes);

/* For a text that was refused at `where`: returns the Infinity, -Infinity or NaN in that line,
 * which JSON does not have, and sets its column in *where. NULL: it was refused for another
 * reason. */
const char *program_json_infinite(const char *text, size_t bytes, json_error_t *where);
