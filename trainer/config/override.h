/* Changing a tree at a dotted path. */
#ifndef TRAINER_CONFIG_OVERRIDE_H
#define TRAINER_CONFIG_OVERRIDE_H

#include <jansson.h>

#include <dcp/error.h>

/* Sets tree's value at "a.b.c", making the objects on the way. Takes `value` (NULL: out of memory).
 * 0, or -1 where something on the way is no object. */
int config_set(json_t *tree, const char *path, json_t *value);

/* Applies "key.path=value". Below "model" any key may be set. */
int config_override(json_t *tree, const char *assignment, dcp_error *err);

#endif
