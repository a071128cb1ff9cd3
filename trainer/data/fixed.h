/* One batch from a safetensors file, the same at every step. */
#pragma once

#include "data/source.h"

extern const data_source data_fixed;

/* Tokens of a row of the fixed batch, a safetensors file. Errors as data_open's. */
int data_fixed_sequence(const char *path, uint64_t *out, dcp_error *err);
