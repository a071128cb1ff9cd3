/* The interface of a type of data: the options that it receives, and the functions that it
 * provides. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <dcp/error.h>

#include "config/lists.h"
#include "models/sample.h"

enum { DATA_ANY_BATCH = 0 }; /* for a fixed batch: accept any size */

typedef struct data_options {
    const char *type; /* "text", "tokens", "records", "speech", "idx" or "safetensors" */
    const char *path;
    const char *dtype; /* for tokens: "uint16" or "uint32"; NULL: uint16 if the vocabulary fits,
                          otherwise uint32 */
    uint64_t batch;    /* samples per step, or DATA_ANY_BATCH */
    sample_shape shape;
    const config_source *others; /* [n_others], besides `path`; borrowed during data_open */
    size_t n_others;
} data_options;

/* A description of files of text or ids. */
typedef struct data_contents {
    size_t files; /* the number of files that are not empty; 0 for other types of data */
    uint64_t bytes;
    const char *binary; /* the first file with a NUL near its start; NULL if none. Borrowed. */
    uint64_t nul;       /* the offset of that NUL */
} data_contents;

typedef struct data_source {
    const char *type;
    bool tokens, numbers, speech; /* the kinds of samples that it can provide */
    int (*open)(const data_options *options, void **state, dcp_error *err);
    void (*close)(void *state);
    uint64_t (*samples)(const void *state);
    /* Reads sample number `index` of `epoch` into the memory that `out` points to. */
    int (*read)(void *state, uint64_t seed, uint64_t epoch, uint64_t index, const sample_batch *out,
                dcp_error *err);
    /* Adds to *records the number of records of an epoch, and to *tokens the number of tokens of
     * these records that samples include. NULL if samples cannot be packed. */
    void (*count)(const void *state, uint64_t *records, uint64_t *tokens);
    /* NULL if samples do not consist of bytes. */
    void (*normalize)(void *state, const sample_normalization *how);
    void (*contents)(const void *state, data_contents *add); /* NULL: nothing to report */
} data_source;

/* Images, or vectors, and their classes from files of the IDX format, as in MNIST. */

extern const data_source data_idx;

/* Records, for example chats: token ids with a mask of the ids to be learned, from safetensors
 * files. */

extern const data_source data_records;

/* Recordings of voices: text, codes and speakers' vectors. */

extern const data_source data_recordings;

/* Sequences of tokens, which are bytes or token ids, from files. */

extern const data_source data_text, data_tokens;

/* One batch from a safetensors file, the same at every step. */

extern const data_source data_fixed;

/* The number of tokens per row of the fixed batch, a safetensors file. Returns the same errors as
 * data_open. */
int data_fixed_sequence(const char *path, uint64_t *out, dcp_error *err);
