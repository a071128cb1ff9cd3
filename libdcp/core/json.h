/* The JSON text of a checkpoint, in one canonical form: equal values give equal bytes. */
#pragma once

#include <jansson.h>

#include "dcp/error.h"

/* Parses one JSON object (duplicate keys refused); NULL text gives an empty one. The caller
 * releases *out with json_decref. */
int core_json_parse_object(const char *text, size_t bytes, json_t **out, dcp_error *err);

/* Reals have the fewest of 15, 16 or 17 digits with which every real of the text reads back as the
 * same number. `flags` are jansson's. malloc'd; NULL: out of memory. */
char *core_json_exact(const json_t *value, size_t flags);

/* The same with sorted keys and no spaces. */
char *core_json_canonical(const json_t *value);
