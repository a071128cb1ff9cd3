/* The keys of dcp-train's configuration. A row has a key's type, default, limits, one line of help,
 * and the member of the struct that it fills in. Reading, checking, --print-config and --print-keys
 * all use this list. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"
#include "config/findings.h"

enum { CONFIG_PATH_MAX = 64 }; /* longer than any key's path */

/* The type of a value, and of the struct's member. */
typedef enum config_type {
    CONFIG_TEXT,    /* const char * */
    CONFIG_WORD,    /* one of the row's words; const char * */
    CONFIG_CHOICE,  /* one of the row's words; an int or enum: the word's index */
    CONFIG_INTEGER, /* min <= value <= max; uint64_t */
    CONFIG_NUMBER,  /* min <= value <= max; double */
    CONFIG_SWITCH,  /* true or false; bool */
    CONFIG_BETAS,   /* two numbers in [0, 1); const json_t *, as for the types below */
    CONFIG_NAMES,   /* list of strings */
    CONFIG_OBJECTS, /* list of objects; see `check` */
    CONFIG_MODEL,   /* path, or an object with its own keys */
} config_type;

typedef struct config_key {
    const char *path; /* "optimizer.params.lr" */
    config_type type;
    const char *fallback; /* the default, as JSON; NULL: the key is mandatory */
    const char *help;
    const char *words; /* "direct|mpio"; for CONFIG_TEXT, words with a special meaning */
    double min, max;
    bool nullable, is_name; /* is_name: a CONFIG_TEXT that is a name, not a path */
    /* The optimizer.type that has the key; NULL if the key does not depend on the optimizer. A key
     * whose default depends on the optimizer has a row for each optimizer. */
    const char *optimizer;
    /* "key=word|word": this row's key has no effect while the named key has one of these values.
     * NULL if there is no such condition. */
    const char *idle_where;
    size_t offset; /* of the struct's member; 0: none */
    /* For a list of objects: functions that check the list, and that fill in what its entries omit.
     * NULL if there is nothing to do. */
    int (*check)(const char *path, const json_t *list, dcp_error *err);
    int (*complete)(json_t *list);
} config_key;

extern const config_key config_keys[];
extern const size_t config_keys_count;

/* The key of that path; NULL if there is none. */
const config_key *config_key_find(const char *path);
/* The key of that path, if it exists for that optimizer.type; otherwise NULL. */
const config_key *config_key_of(const char *path, const char *optimizer);
/* Returns true if there are keys below the path: "optimizer", "optimizer.params". */
bool config_key_is_group(const char *path);

/* Returns DCP_OK if `value` has the key's type and is in its range, otherwise DCP_ERR_ARG;
 * DCP_ERR_UNSUPPORTED for a path that core_path_check refuses. */
int config_key_check(const config_key *key, const json_t *value, dcp_error *err);

/* Adds to `f` the keys of `given` that have no effect because of other keys. Requires that all keys
 * and values of `given` are valid. */
void config_schema_note_idle(const json_t *given, config_findings *f);

/* Fills in the members of *c that belong to keys. Requires that c->tree has a valid value for every
 * key. */
void config_schema_fill(config *c);

/* Prints a line for each key: the values it accepts, its default and its help. */
void config_schema_print(void);
