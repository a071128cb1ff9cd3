/* Every key of dcp-train's configuration: its type, default and range. The one list that parsing,
 * checking and --print-config go by. */
#ifndef TRAINER_CONFIG_SCHEMA_H
#define TRAINER_CONFIG_SCHEMA_H

#include <jansson.h>
#include <stddef.h>

#include <dcp/error.h>

enum { CONFIG_PATH_MAX = 64 }; /* longer than any key's path */

typedef enum config_type {
    CONFIG_TEXT,
    CONFIG_CHOICE,  /* one of config_key.choices */
    CONFIG_INTEGER, /* min <= value <= max */
    CONFIG_NUMBER,  /* min <= value <= max */
    CONFIG_BETAS,   /* two numbers of [0, 1) */
    CONFIG_SWITCH,  /* true or false */
    CONFIG_NAMES,   /* list of strings */
    CONFIG_STORES,  /* list of objects (stores.h) */
    CONFIG_MODEL,   /* path, or an object with keys of its own */
} config_type;

typedef struct config_key {
    const char *path; /* "optimizer.params.lr" */
    config_type type;
    const char *fallback; /* the default, as JSON; NULL: must be given */
    const char *choices;  /* of CONFIG_CHOICE: "direct|mpio" */
    double min, max;
    int nullable;
    /* The optimizer.type that has the key; NULL: all have it, or it is none of theirs. Where their
     * defaults differ, a key has a row for each of them. */
    const char *optimizer;
} config_key;

extern const config_key config_keys[];
extern const size_t config_keys_count;

/* The key of that path; NULL where there is none. */
const config_key *config_key_find(const char *path);
/* The same, of those that there are where optimizer.type is that. */
const config_key *config_key_of(const char *path, const char *optimizer);
/* Whether keys lie below the path: "optimizer", "optimizer.params". */
int config_key_is_group(const char *path);
/* The key, or group of keys, that `path` was probably meant to be; 0: none is like it. */
int config_key_nearest(const char *path, char best[CONFIG_PATH_MAX]);

/* Levenshtein's distance of two words. */
size_t config_distance(const char *a, const char *b);

/* DCP_OK where `value` is of the key's type and in its range, else DCP_ERR_ARG. */
int config_key_check(const config_key *key, const json_t *value, dcp_error *err);

#endif
