/* Which key or word was probably meant by one that does not exist. */
#pragma once

#include <stddef.h>

#include "config/schema.h"

/* Writes the key, or group of keys, that `path` is most like into best[]; 0: none is like it. */
int config_suggest_key(const char *path, char best[CONFIG_PATH_MAX]);
