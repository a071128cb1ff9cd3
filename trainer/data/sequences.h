/* Sequences of tokens from files: of bytes, or of token ids. */
#pragma once

#include "data/source.h"

extern const data_source data_text, data_tokens;
