/* data.sources: additional data of the same type as data.path, and how much of each to use. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include <dcp/error.h>

enum { CONFIG_MAX_SOURCES = 63 };

typedef struct config_source {
    const char *path;
    double weight; /* relative to 1 for data.path */
} config_source;

/* Returns DCP_OK if every entry of the list has a path, and no other key except a weight. */
int config_sources_check(const char *path, const json_t *list, dcp_error *err);

/* Fills out[CONFIG_MAX_SOURCES] from a checked list and returns the number of sources. The list
 * owns the paths. */
size_t config_sources_fill(const json_t *list, config_source *out);
