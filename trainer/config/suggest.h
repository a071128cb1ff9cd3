/* Guesses which existing key a user meant by an unknown key. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "config/schema.h"

/* Writes to best[] the key, or group of keys, that is most similar to `path`. Returns false if none
 * is similar. */
bool config_suggest_key(const char *path, char best[CONFIG_PATH_MAX]);
