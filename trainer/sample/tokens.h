/* What tokens are to people: bytes, or what the tokenizer says that the checkpoint carries. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sample/loaded.h"

typedef struct sample_tokens sample_tokens;

/* DCP_ERR_ARG: the checkpoint has no tokenizer, and was not trained on bytes.
 * DCP_ERR_UNSUPPORTED: its tokenizer is of another kind than those that can be read. */
int sample_tokens_open(const sample_loaded *from, sample_tokens **out, dcp_error *err);
void sample_tokens_close(sample_tokens *t); /* NULL is ignored */

/* The tokens of a text, with those that its tokenizer adds; *ids is the caller's to free, also on
 * failure. DCP_ERR_MISMATCH: one is outside the model's vocabulary. */
int sample_tokens_read(const sample_tokens *t, const char *text, int32_t **ids, size_t *n,
                       dcp_error *err);

/* Writes a token's text to stdout, as far as its characters are whole. */
void sample_tokens_write(sample_tokens *t, int32_t id);
