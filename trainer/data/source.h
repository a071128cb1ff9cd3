/* What a kind of data is asked for, and what it provides. */
#pragma once

#include <stdint.h>

#include "models/sample.h"
#include <dcp/error.h>

enum { DATA_ANY_BATCH = 0 }; /* a fixed batch may be of any size */
enum { DATA_MOST_SOURCES = 63 }; /* a configuration's most */

/* Further data, and how much of it beside 1 of data_options.path. */
typedef struct data_share {
    const char *path;
    double weight;
} data_share;

typedef struct data_options {
    const char *type; /* "text", "tokens", "idx" or "safetensors" */
    const char *path;
    const char *dtype; /* of tokens: "uint16" or "uint32"; NULL: uint16 where the vocabulary fits */
    uint64_t batch;    /* samples of a step; DATA_ANY_BATCH */
    sample_shape shape;
    const data_share
        *others; /* [n_others], at most DATA_MOST_SOURCES; borrowed by data_open alone */
    size_t n_others;
} data_options;

typedef struct data_source {
    const char *type;
    int tokens, numbers; /* which kinds of samples it can give */
    int (*open)(const data_options *options, void **state, dcp_error *err);
    void (*close)(void *state);
    uint64_t (*samples)(const void *state);
    /* Sample number `index` of `epoch`, into the memory that `out` points to. */
    int (*read)(void *state, uint64_t seed, uint64_t epoch, uint64_t index, const sample_batch *out,
                dcp_error *err);
} data_source;
