/* The model of a checkpoint in this process, and its tokens: as bytes or ids, whole characters, and
 * the choice of the next one. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dcp/checkpoint.h>

#include "models/model.h"

/* The model of a checkpoint, whole, in the memory of this process. */

/* All of it is the struct's until the close. */
typedef struct sample_loaded {
    dcp_comm *comm; /* this process alone */
    dcp_checkpoint *ckpt;
    json_t *meta; /* what the trainer saved beside the tensors */
    model *m;
    float **params; /* of all units, one after the other, in `memory` */
    size_t *first;  /* [units] where each unit's begin */
    void *memory;
} sample_loaded;

/* `path`: a step's folder, of either layout, saved by any number of ranks. Computes in bf16 where
 * the run did. DCP_ERR_ARG: it holds no language model of the trainer's. DCP_ERR_MISMATCH: its
 * tensors are not those of its model. Other failures as dcp_load's. Closed again on failure. */
int sample_loaded_open(const char *path, sample_loaded *out, dcp_error *err);
void sample_loaded_close(sample_loaded *s);

/* What model_forward takes for the stage. */
const float *const *sample_loaded_params(const sample_loaded *s, size_t stage);

/* Bytes that come in any parts, as UTF-8 for people: whole characters alone. */

typedef struct sample_characters {
    unsigned char begun[4]; /* of a character that is not whole yet */
    size_t n;
} sample_characters;

/* Writes what is whole. What cannot become a character is written as U+FFFD, as Python's
 * errors="replace" does. */
void sample_characters_put(sample_characters *c, const char *bytes, size_t n, FILE *to);

/* The next token, from the logits of all. */

/* Temperature 0: the likeliest, of equal ones the first. Else by chance, with probabilities
 * softmax(logits / temperature); number `at` of the seed's decides, the same on any machine.
 * Returns 0 where a logit is no number. */
int sample_choose(const float *logits, size_t classes, double temperature, uint64_t seed,
                  uint64_t at, int32_t *out);

/* How a sample's tokens are given and printed: as text, where each token is a byte, or as ids. */

typedef struct sample_tokens sample_tokens;

/* DCP_ERR_ARG: as_ids is 0, and the checkpoint's tokens are not bytes. */
int sample_tokens_open(const sample_loaded *from, int as_ids, sample_tokens **out, dcp_error *err);
void sample_tokens_close(sample_tokens *t); /* NULL is ignored */

/* The tokens of a text: its bytes, or the decimal ids that are written in it. *ids is the caller's
 * to free, also on failure. DCP_ERR_ARG: the text holds something that is no id of the model's. */
int sample_tokens_read(const sample_tokens *t, const char *text, int32_t **ids, size_t *n,
                       dcp_error *err);

/* Writes a token to stdout: the text, as far as its characters are whole, or the id, with a space
 * between two of them. */
void sample_tokens_write(sample_tokens *t, int32_t id);
