/* What a kind of data is asked for, and what it provides. */
#pragma once

#include <stdint.h>

#include <dcp/error.h>

#include "config/sources.h"
#include "models/sample.h"

enum { DATA_ANY_BATCH = 0 }; /* a fixed batch may be of any size */

typedef struct data_options {
    const char *type; /* "text", "tokens", "records", "speech", "idx" or "safetensors" */
    const char *path;
    const char *dtype; /* of tokens: "uint16" or "uint32"; NULL: uint16 where the vocabulary fits */
    uint64_t batch;    /* samples of a step; DATA_ANY_BATCH */
    sample_shape shape;
    const config_source *others; /* [n_others], beside `path`; borrowed by data_open alone */
    size_t n_others;
} data_options;

/* The files of text or ids, and which of them is no text. */
typedef struct data_contents {
    size_t files; /* that hold something; 0: of another type of data */
    uint64_t bytes;
    const char *binary; /* the first file whose beginning has a NUL; NULL: none. Borrowed. */
    uint64_t nul;       /* where in it */
} data_contents;

typedef struct data_source {
    const char *type;
    int tokens, numbers, speech; /* which kinds of samples it can give */
    int (*open)(const data_options *options, void **state, dcp_error *err);
    void (*close)(void *state);
    uint64_t (*samples)(const void *state);
    /* Sample number `index` of `epoch`, into the memory that `out` points to. */
    int (*read)(void *state, uint64_t seed, uint64_t epoch, uint64_t index, const sample_batch *out,
                dcp_error *err);
    /* Adds how many records an epoch has, and the tokens of these that go in; NULL: samples cannot
     * be packed. */
    void (*count)(const void *state, uint64_t *records, uint64_t *tokens);
    void (*normalize)(void *state, const sample_normalization *how); /* NULL: it has no bytes */
    void (*contents)(const void *state, data_contents *add);         /* NULL: nothing to tell */
} data_source;

/* Images, or vectors, and their classes from files of the IDX format, as MNIST has them. */

extern const data_source data_idx;

/* Records, such as chats: token ids with a mask of those to be learned, from safetensors files. */

extern const data_source data_records;

/* Recordings of voices: text, codes and speakers' vectors. */

extern const data_source data_recordings;

/* Sequences of tokens from files: of bytes, or of token ids. */

extern const data_source data_text, data_tokens;

/* One batch from a safetensors file, the same at every step. */

extern const data_source data_fixed;

/* Tokens of a row of the fixed batch, a safetensors file. Errors as data_open's. */
int data_fixed_sequence(const char *path, uint64_t *out, dcp_error *err);
