/* Reading the keys of a model's config.json, and what it requests that is not supported. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

#include "kernels/kernels.h"

/* What a config.json asks for that is not there. All of it is told in one message, with what to set
 * on the command line of dcp-train to do without. */

/* Zeroed: nothing is refused. */
typedef struct model_refusals {
    size_t n, told;      /* reasons; those of them that had room */
    int helpless;        /* one of them goes away by no setting */
    char reasons[500];   /* joined */
    char overrides[400]; /* likewise, of the form model.key=value */
} model_refusals;

/* One more reason, as printf tells it: the key, its value and why. `key` set to `value` takes it
 * away; NULL: no setting does. */
void model_refusals_add(model_refusals *r, const char *key, const char *value, const char *fmt, ...)
    DCP_PRINTF(4, 5);

/* DCP_ERR_UNSUPPORTED with all reasons, or DCP_OK where there is none. */
int model_refusals_tell(const model_refusals *r, dcp_error *err);

/* Reading the keys of a model's config.json. A key that is null counts as absent; messages name the
 * key and its value. DCP_ERR_ARG: a value is missing, or of the wrong type or size. What asks for
 * what we don't have is no error here but a refusal, so that all of them are found. */

/* An object whose keys are read. */
typedef struct model_keys {
    const json_t *object;
    const char *path; /* what its keys' names begin with in messages: "" or "rope_scaling." */
    model_refusals *refused;
} model_keys;

/* Largest size taken: products of two stay far from overflow, and no model comes near it. */
#define KEYS_MAX_SIZE (UINT64_C(1) << 28)
#define KEYS_MAX_LAYERS (UINT64_C(1) << 14)
enum { KEYS_REQUIRED = 0 };

/* A size and where it goes. */
typedef struct keys_entry {
    const char *key;
    const char *other; /* another spelling, or NULL */
    uint64_t absent;   /* its value where the key is missing, or KEYS_REQUIRED */
    uint64_t *out;
    uint64_t most; /* 0: KEYS_MAX_SIZE */
} keys_entry;

/* The value of a key; NULL where it is absent or null. */
const json_t *model_keys_value(const model_keys *keys, const char *key);

/* A size of at least 1. Two spellings that differ are an error. */
int model_keys_size(const model_keys *keys, const keys_entry *entry, dcp_error *err);
int model_keys_sizes(const model_keys *keys, const keys_entry *entries, size_t n, dcp_error *err);
/* [height, width], or one number for both. */
int model_keys_pair(const model_keys *keys, const char *key, uint64_t absent, uint64_t out[2],
                    dcp_error *err);
/* A finite number that is at least `least`. */
int model_keys_number(const model_keys *keys, const char *key, double absent, double least,
                      double *out, dcp_error *err);
int model_keys_flag(const model_keys *keys, const char *key, int absent, int *out, dcp_error *err);
/* `absent`, too, where we don't have the one that is named. */
int model_keys_activation(const model_keys *keys, const char *key, const char *absent,
                          kernels_activation *out, dcp_error *err);

/* Refuses a value: "key text: why", where `set` is what the key may be set to. */
void model_keys_refuse(const model_keys *keys, const char *key, const char *text, const char *why,
                       const char *set);
/* What a key must be where it is given. */
int model_keys_only_flag(const model_keys *keys, const char *key, int only, dcp_error *err);
/* set: as model_keys_refuse has it; NULL: the model is another one, whatever the key is set to. */
void model_keys_only_text(const model_keys *keys, const char *key, const char *only,
                          const char *set);
int model_keys_only_number(const model_keys *keys, const char *key, double only, dcp_error *err);
/* For each: dropout is not computed, so a config that asks for it must say that it shall not be. */
int model_keys_no_dropout(const model_keys *keys, const char *const *names, size_t n,
                          dcp_error *err);
/* What no family here has: experts, caps on scores and logits, quantized weights. */
void model_keys_no_extras(const model_keys *keys);
