/* Normalizers, pre-tokenizers and decoders of a tokenizer.json, as steps. */
#pragma once

#include "text/steps.h"

/* Each adds the steps of the value of its key (NULL and null: none) to `steps`, which the caller
 * closes on failure too. DCP_ERR_UNSUPPORTED: a type that is not known. DCP_ERR_ARG: what is wrong
 * with one that is. */
int text_step_parts_normalizer(const char *file, const json_t *value, text_steps *steps,
                               dcp_error *err);
int text_step_parts_pre_tokenizer(const char *file, const json_t *value, text_steps *steps,
                                  dcp_error *err);

/* Of a token by itself: what a decoder does to the begin of a whole text is left out. */
int text_step_parts_decoder(const char *file, const json_t *value, text_steps *steps,
                            dcp_error *err);
