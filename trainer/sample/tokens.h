/* How a sample's tokens are given and printed: as text, where each token is a byte, or as ids. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sample/loaded.h"

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
