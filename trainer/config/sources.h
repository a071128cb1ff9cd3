/* data.sources: data beside data.path, of the same type, and how much of each. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include <dcp/error.h>

enum { CONFIG_MOST_SOURCES = 63 };

typedef struct config_source {
    const char *path;
    double weight; /* beside 1 of data.path */
} config_source;

/* DCP_OK where every entry of the list has a path and else only a weight. */
int config_sources_check(const char *path, const json_t *list, dcp_error *err);

/* Fills out[CONFIG_MOST_SOURCES] from a checked list and returns the number. Paths are borrowed
 * from it. */
size_t config_sources_fill(const json_t *list, config_source *out);
