/* The model of a run, and how long its samples are. */
#pragma once

#include <stdint.h>

#include "models/model.h"
#include <dcp/error.h>

typedef struct config config;

/* What is trained, as the configuration describes it; needs no ranks. */
int setup_model(const config *c, model **out, dcp_error *err);
/* Tokens of a sample, which may be those of a stored batch; 0: the model takes none. */
int setup_sequence(const config *c, const model *m, uint64_t *out, dcp_error *err);
