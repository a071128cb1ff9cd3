/* Trees of JSON: reading them from files, and their values by dotted paths. */
#pragma once

#include <jansson.h>

#include <dcp/error.h>

/* A file of at most 2 MiB that holds one JSON object; a model's may come from anywhere. Duplicate
 * keys are refused: one of the two values would be lost in silence. */
int config_json_read(const char *path, json_t **out, dcp_error *err);

/* The value at "a.b.c"; NULL where there is none. */
json_t *config_json_at(const json_t *tree, const char *path);

/* Sets tree's value at "a.b.c", making the objects on the way. Takes `value` (NULL: out of memory).
 * 0, or -1 where something on the way is no object. */
int config_json_set(json_t *tree, const char *path, json_t *value);
