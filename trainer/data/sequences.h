/* Sequences of tokens from files: of bytes, or of token ids. */
#ifndef TRAINER_DATA_SEQUENCES_H
#define TRAINER_DATA_SEQUENCES_H

#include "data/source.h"

extern const data_source data_text, data_tokens;

#endif
