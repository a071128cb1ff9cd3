/* Text as token ids and back, as a Hugging Face tokenizer.json says: byte-pair encoding. A
 * tokenizer may be used by several threads at once. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

typedef struct text_bpe text_bpe;

/* Not collective. `json`: the content of a tokenizer.json, of `bytes`; it need not stay. `name` is
 * what messages call the file. DCP_ERR_UNSUPPORTED names what is not there: another model than BPE,
 * a normalizer, pre-tokenizer, post-processor or decoder that is not known. DCP_ERR_ARG and
 * DCP_ERR_CORRUPT: what is wrong with the file. */
int text_bpe_open(const char *name, const char *json, size_t bytes, text_bpe **out, dcp_error *err);
void text_bpe_close(text_bpe *t);

/* The highest id, and one. */
uint64_t text_bpe_vocabulary(const text_bpe *t);

/* The ids that `special` puts before a text; how many there are. *ids is the tokenizer's. */
size_t text_bpe_before(const text_bpe *t, const int32_t **ids);
/* How many `special` puts behind it. */
size_t text_bpe_after(const text_bpe *t);

/* *ids is the caller's to free. Added tokens that are written in the text become their ids. With
 * `special` the tokens that the post-processor adds are added, such as one that begins a sequence.
 * Bytes that are no UTF-8 are encoded as they are where the tokenizer is byte-level; else each is
 * U+FFFD, as Python's errors="replace" has it. Characters that the tokenizer has no token for are
 * left out where it names no unknown one, as in `tokenizers`. */
int text_bpe_encode(const text_bpe *t, const char *text, size_t bytes, int special, int32_t **ids,
                    size_t *n, dcp_error *err);

/* The bytes of one id, valid until the close; special tokens have none (*is_special). They may be a
 * part of a character. One after the other, the bytes of ids are their text; where a decoder takes
 * a space from the begin of a whole text, it is still there, as in a text that goes on.
 * DCP_ERR_ARG: there is no such id. */
int text_bpe_bytes(const text_bpe *t, int32_t id, const char **out, size_t *n, int *is_special,
                   dcp_error *err);
