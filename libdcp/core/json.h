/* The JSON text of a checkpoint, in one canonical form: equal values give equal bytes. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "core/json_parse.h"
#include "dcp/error.h"

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
