/* Trees of JSON: reads them from files, and finds values by dotted paths. */
#pragma once

#include <jansson.h>

#include <dcp/error.h>

/* Reads a file of at most 2 MiB that contains one JSON object; a model's file may come from
 * anywhere. Refuses duplicate keys: one of the two values would be lost silently. */
int config_json_read(const char *path, json_t **out, dcp_error *err);

/* The value at "a.b.c"; NULL if there is none. */
json_t *config_json_at(const json_t *tree, const char *path);

/* Sets the value at "a.b.c", and creates the objects on the way. Takes over `value` (NULL: out of
 * memory). Returns 0, or -1 if something on the way is not an object. */
int config_json_set(json_t *tree, const char *path, json_t *value);
