/* The model of a run, and the length of its samples. */
#pragma once

#include <stdint.h>

#include "models/model.h"
#include <dcp/error.h>

typedef struct config config;

/* Makes the model that the configuration describes. Not collective. */
int setup_model(const config *c, model **out, dcp_error *err);
/* *out: the number of tokens of a sample, which for a stored batch is read from the batch's file; 0
 * if the model takes no tokens. */
int setup_sequence(const config *c, const model *m, uint64_t *out, dcp_error *err);
