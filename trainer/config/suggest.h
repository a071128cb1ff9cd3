/* Guesses which existing key a user meant by an unknown key. */
#pragma once

#include <stddef.h>

#include "config/schema.h"

/* Writes the key, or group of keys, that is most similar to `path` to best[]. Returns 0 if none is
 * similar. */
int config_suggest_key(const char *path, char best[CONFIG_PATH_MAX]);
