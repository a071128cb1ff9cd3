/* Training samples. Samples are numbered globally through all epochs, and sample g is a function of
 * the data, the seed and g alone: never of ranks or of what was read before. */
#ifndef TRAINER_DATA_DATA_H
#define TRAINER_DATA_DATA_H

#include <stdint.h>

#include "dcp/error.h"

enum { DATA_IGNORE = -100 }; /* a target that does not count */

typedef struct data data;

typedef struct data_options {
    const char *type; /* "text" or "safetensors" */
    const char *path;
    uint64_t sequence; /* tokens of a sample */
    uint64_t batch;    /* samples of a step */
    uint64_t vocab;    /* ids and targets are checked to lie below it */
} data_options;

/* Not collective. DCP_ERR_NOT_FOUND, DCP_ERR_ARG: what is wrong with path or content. */
int data_open(const data_options *options, data **out, dcp_error *err);
void data_close(data *d);

/* Samples of an epoch. */
uint64_t data_samples(const data *d);
/* A number that differs where ranks found different data. */
uint64_t data_fingerprint(const data *d);

/* Samples first ... first + n - 1: ids and targets [n, sequence], and how many targets count. */
int data_read(data *d, uint64_t seed, uint64_t first, uint64_t n, int32_t *ids, int32_t *targets,
              uint64_t *counted, dcp_error *err);

#endif
