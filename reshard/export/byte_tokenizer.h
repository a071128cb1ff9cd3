/* A tokenizer for models that were trained on bytes. */
#pragma once

#include "export/contents.h"

/* Writes tokenizer.json and tokenizer_config.json into `dir`, by which transformers' AutoTokenizer
 * makes text to its bytes, where dcp-train trained a vocabulary of 256 and the checkpoint holds no
 * tokenizer. An exit status, after a message. */
int export_byte_tokenizer_write(const dcp_checkpoint *ckpt, const json_t *config, const char *dir);
