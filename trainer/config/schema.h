/* Every key of dcp-train's configuration: a row has its type, default, limits, one line of help,
 * and the member of the struct that it fills in. The one list that reading, checking,
 * --print-config and --print-keys go by. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "config/config.h"
#include "config/findings.h"

enum { CONFIG_PATH_MAX = 64 }; /* longer than any key's path */

/* What a value is, and of which type the struct's member is. */
typedef enum config_type {
    CONFIG_TEXT,    /* const char * */
    CONFIG_WORD,    /* one of the row's words; const char * */
    CONFIG_CHOICE,  /* likewise; an int or enum: the word's number */
    CONFIG_INTEGER, /* min <= value <= max; uint64_t */
    CONFIG_NUMBER,  /* min <= value <= max; double */
    CONFIG_SWITCH,  /* true or false; int */
    CONFIG_BETAS,   /* two numbers of [0, 1); const json_t *, as those below */
    CONFIG_NAMES,   /* list of strings */
    CONFIG_OBJECTS, /* list of objects; see `check` */
    CONFIG_MODEL,   /* path, or an object with keys of its own */
} config_type;

typedef struct config_key {
    const char *path; /* "optimizer.params.lr" */
    config_type type;
    const char *fallback; /* the default, as JSON; NULL: must be given */
    const char *help;
    const char *words; /* "direct|mpio"; of CONFIG_TEXT words that mean something */
    double min, max;
    int nullable, is_name; /* is_name: of CONFIG_TEXT no path, but a name */
    /* The optimizer.type that has the key; NULL: all have it, or it is none of theirs. Where their
     * defaults differ, a key has a row for each of them. */
    const char *optimizer;
    /* "key=word|word": that other key leaves this one without effect where it has one of these
     * values; NULL: none does. */
    const char *idle_where;
    size_t offset; /* of the struct's member; 0: none */
    /* Of a list of objects: whether they are right, and what completes them, NULL: nothing. */
    int (*check)(const char *path, const json_t *list, dcp_error *err);
    int (*complete)(json_t *list);
} config_key;

extern const config_key config_keys[];
extern const size_t config_keys_count;

/* The key of that path; NULL where there is none. */
const config_key *config_key_find(const char *path);
/* The same, of those that there are where optimizer.type is that. */
const config_key *config_key_of(const char *path, const char *optimizer);
/* Whether keys lie below the path: "optimizer", "optimizer.params". */
int config_key_is_group(const char *path);

/* DCP_OK where `value` is of the key's type and in its range, else DCP_ERR_ARG. */
int config_key_check(const config_key *key, const json_t *value, dcp_error *err);

/* Adds to `f` the keys of `given`, a tree of known keys with right values, that other keys leave
 * without effect. */
void config_schema_note_idle(const json_t *given, config_findings *f);

/* Fills in the members that keys have, from c->tree, in which every key is there and right. */
void config_schema_fill(config *c);

/* Prints each key with what it takes, its default and its help, a line each. */
void config_schema_print(void);
