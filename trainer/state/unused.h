/* What a Hugging Face folder holds and a run that was given the folder does not use. */
#pragma once

#include "config/config.h"

/* Where a run starts at random: warns where `model` is a folder that holds weights. */
void state_unused_weights_warn(const config *c, int rank);

/* Where data are bytes: warns where a folder has a tokenizer, and the vocabulary has more than
 * bytes. */
void state_unused_tokenizer_warn(const config *c, uint64_t vocabulary, int rank);
