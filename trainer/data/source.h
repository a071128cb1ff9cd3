/* What a kind of data provides. */
#ifndef TRAINER_DATA_SOURCE_H
#define TRAINER_DATA_SOURCE_H

#include "data/data.h"

typedef struct data_source {
    const char *type;
    int tokens, numbers; /* which kinds of samples it can give */
    int (*open)(const data_options *options, void **state, dcp_error *err);
    void (*close)(void *state);
    uint64_t (*samples)(const void *state);
    uint64_t (*fingerprint)(const void *state);
    /* Sample number `index` of `epoch`, into the memory that `out` points to. */
    int (*read)(void *state, uint64_t seed, uint64_t epoch, uint64_t index, const sample_batch *out,
                dcp_error *err);
} data_source;

extern const data_source data_text, data_tokens, data_idx, data_fixed;

#endif
