/* The model of a checkpoint in this process, its tokens as bytes or ids, complete characters, and
 * the choice of the next token. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dcp/checkpoint.h>

#include "models/model.h"

/* The whole model of a checkpoint, in this process's memory. */

/* The struct owns all members until it is closed. */
typedef struct sample_loaded {
    dcp_comm *comm; /* contains only this process */
    dcp_checkpoint *ckpt;
    json_t *meta; /* what the trainer saved beside the tensors */
    model *m;
    float **params; /* of all units, in order, in `memory` */
    size_t *first;  /* [units] the index of each unit's first parameter */
    void *memory;
} sample_loaded;

/* path: a step's folder, of either layout, saved by any number of ranks. The model computes in bf16
 * if the run did. DCP_ERR_ARG: the step holds no language model of the trainer. DCP_ERR_MISMATCH:
 * the step's tensors do not match its model. Otherwise the errors of dcp_load. After a failure
 * nothing remains open. */
int sample_loaded_open(const char *path, sample_loaded *out, dcp_error *err);
void sample_loaded_close(sample_loaded *s);

/* Returns the parameters that model_forward requires for the stage. */
const float *const *sample_loaded_params(const sample_loaded *s, size_t stage);

/* Turns bytes, however they are divided among calls, into readable UTF-8: only complete characters
 * are written. */

typedef struct sample_characters {
    unsigned char begun[4]; /* the bytes of an incomplete character */
    size_t n;
} sample_characters;

/* Writes the complete characters. Bytes that cannot become a character are written as U+FFFD, as
 * with Python's errors="replace". */
void sample_characters_put(sample_characters *c, const char *bytes, size_t n, FILE *to);

/* Chooses the next token from the logits of all tokens. Temperature 0: the most likely token, or
 * the first of several that are equally likely. Otherwise the choice is random, with probabilities
 * softmax(logits / temperature); it depends on number `at` of the seed's random sequence, the same
 * on any machine. Returns false if a logit is NaN, or the largest one is infinite. */
bool sample_choose(const float *logits, size_t classes, double temperature, uint64_t seed,
                   uint64_t at, int32_t *out);

/* How a sample's tokens are read and printed: as text, in which each byte is a token, or as ids. */

typedef struct sample_tokens sample_tokens;

/* DCP_ERR_ARG: as_ids is 0, and the checkpoint's tokens are not bytes. */
int sample_tokens_open(const sample_loaded *from, bool as_ids, sample_tokens **out, dcp_error *err);
void sample_tokens_close(sample_tokens *t); /* NULL is ignored */

/* Reads the tokens of a text: its bytes, or the decimal ids that it contains. The caller frees
 * *ids, even after a failure. DCP_ERR_ARG: the text contains something that is not an id of the
 * model. */
int sample_tokens_read(const sample_tokens *t, const char *text, int32_t **ids, size_t *n,
                       dcp_error *err);

/* Writes a token to stdout: as text, once a character is complete, or as an id, with a space
 * between ids. */
void sample_tokens_write(sample_tokens *t, int32_t id);
