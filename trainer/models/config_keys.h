/* Reading the keys of a model's config.json, and collecting the unsupported features that it
 * requires. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

#include "kernels/kernels.h"

/* Features that a config.json requires and that are not supported. One message reports them all,
 * with the settings of dcp-train's command line that turn them off. */

/* Zeroed if nothing is refused. */
typedef struct model_refusals {
    size_t n, told;      /* the number of reasons, and how many of them fit into `reasons` */
    bool helpless;       /* at least one of the reasons cannot be removed by a setting */
    char reasons[500];   /* the reasons, joined */
    char overrides[400]; /* the settings, joined: model.key=value */
} model_refusals;

/* Adds a reason, formatted as by printf: the key, its value and why. Setting `key` to `value`
 * removes the reason. key is NULL if no setting does. */
void model_refusals_add(model_refusals *r, const char *key, const char *value, const char *fmt, ...)
    DCP_PRINTF(4, 5);

/* Returns DCP_ERR_UNSUPPORTED with all reasons, or DCP_OK if there are none. */
int model_refusals_fail(const model_refusals *r, dcp_error *err);

/* Reading the keys of a model's config.json. A key that is null counts as absent. Messages name the
 * key and its value. DCP_ERR_ARG: a value is missing, or has the wrong type or size. Unsupported
 * features are not an error here but are recorded as refusals, so that all of them are found. */

/* An object whose keys are read. */
typedef struct model_keys {
    const json_t *object;
    const char *path; /* the prefix of its keys in messages: "" or "rope_scaling." */
    model_refusals *refused;
} model_keys;

/* The largest size that is accepted. Products of two sizes are far from overflow, and no model has
 * sizes close to it. */
#define KEYS_MAX_SIZE (UINT64_C(1) << 28)
#define KEYS_MAX_LAYERS (UINT64_C(1) << 14)
enum { KEYS_REQUIRED = 0 };

/* A size and where to store it. */
typedef struct keys_entry {
    const char *key;
    const char *other; /* another spelling, or NULL */
    uint64_t absent;   /* the value if the key is missing, or KEYS_REQUIRED */
    uint64_t *out;
    uint64_t most; /* 0: KEYS_MAX_SIZE */
} keys_entry;

/* The value of a key; NULL if it is absent or null. */
const json_t *model_keys_value(const model_keys *keys, const char *key);

/* A size of at least 1. It is an error if both spellings are given with different values. */
int model_keys_size(const model_keys *keys, const keys_entry *entry, dcp_error *err);
int model_keys_sizes(const model_keys *keys, const keys_entry *entries, size_t n, dcp_error *err);
/* [height, width], or one number for both. */
int model_keys_pair(const model_keys *keys, const char *key, uint64_t absent, uint64_t out[2],
                    dcp_error *err);
/* A finite number that is at least `least`. */
int model_keys_number(const model_keys *keys, const char *key, double absent, double least,
                      double *out, dcp_error *err);
int model_keys_flag(const model_keys *keys, const char *key, bool absent, bool *out,
                    dcp_error *err);
/* If the named function is not supported, refuses it and uses `absent`. */
int model_keys_activation(const model_keys *keys, const char *key, const char *absent,
                          kernels_activation *out, dcp_error *err);

/* Adds the refusal "key text: why". set: a supported value of the key. */
void model_keys_refuse(const model_keys *keys, const char *key, const char *text, const char *why,
                       const char *set);
/* Checks that a key, if it is given, has the only supported value. */
int model_keys_only_flag(const model_keys *keys, const char *key, bool only, dcp_error *err);
/* set: as for model_keys_refuse; NULL if no setting helps, because any other value means a
 * different kind of model. */
void model_keys_only_text(const model_keys *keys, const char *key, const char *only,
                          const char *set);
int model_keys_only_number(const model_keys *keys, const char *key, double only, dcp_error *err);
/* Refuses each of the keys whose value is not 0: dropout is not computed, so a user has to turn it
 * off explicitly. */
int model_keys_no_dropout(const model_keys *keys, const char *const *names, size_t n,
                          dcp_error *err);
/* Refuses the features that no family here supports: experts, caps on scores and logits, quantized
 * weights. */
void model_keys_no_extras(const model_keys *keys);
