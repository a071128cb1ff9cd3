/* Trees of JSON: reads them from files, and finds values by dotted paths. */
#pragma once

#include <jansson.h>

#include <dcp/error.h>

/* Reads a file that contains one JSON object. Refuses a file of more than 2 MiB, because a model's
 * file may come from anywhere. Refuses duplicate keys, because one of the two values would be lost
 * silently. */
int config_json_read(const char *path, json_t **out, dcp_error *err);

/* Returns the value at "a.b.c"; NULL if there is none. */
json_t *config_json_at(const json_t *tree, const char *path);

/* Sets the value at "a.b.c", and creates missing objects on the way. Takes over `value`; NULL means
 * that the caller ran out of memory. Returns 0, or -1 after a failure: `value` is NULL, or
 * something on the way is not an object. */
int config_json_set(json_t *tree, const char *path, json_t *value);
