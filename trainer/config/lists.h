/* Keys whose values are lists of objects. data.sources: additional data of the same type as
 * data.path, and how much of each to use. checkpoint.stores: private stores that are faster than
 * checkpoint.dir, fastest first. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include <dcp/error.h>
#include <dcp/tier.h>

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

#define STRIPE_UNIT 65536 /* stripe_bytes is a multiple of this */

/* Returns DCP_OK if every entry of the list has a path, and all of its keys are known and have
 * valid values. */
int config_stores_check(const char *path, const json_t *list, dcp_error *err);

/* The number of failure domains that a private store with this redundancy can lose at once without
 * losing a step: 0 for NULL and "none", 1 for "partner", K for "rs(K)"; -1 for any other text. */
int config_stores_survivable(const char *redundancy);

/* Adds the keys that the entries of a checked list omit, with their defaults. Returns 0, or -1 if
 * out of memory. */
int config_stores_complete(json_t *list);

/* Fills out[] from a completed list and returns the number of stores. The list owns the strings.
 * domain: used for entries that name none; may be NULL. */
size_t config_stores_fill(const json_t *list, const char *domain, dcp_tier *out);
