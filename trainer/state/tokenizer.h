/* data.tokenizer: the files of a tokenizer that checkpoints carry, and exports bring back. */
#pragma once

#include "state/train_state.h"

/* Not collective. `path`: a Hugging Face folder, of which the tokenizer's files count, or one such
 * file. DCP_ERR_ARG: there is none, or one cannot be read. */
int state_tokenizer_check(const char *path, dcp_error *err);

/* Not collective. The files become the state's, unless it has a tokenizer already, of the
 * checkpoint that it was loaded from. */
int state_tokenizer_keep(train_state *s, const char *path, dcp_error *err);
