/* The families of models, each with a reader of its config.json. */
#pragma once

#include <jansson.h>

#include "models/model_config.h"
#include <dcp/error.h>

/* Fills `out`, which the caller has zeroed. DCP_ERR_UNSUPPORTED: the config asks for what we don't
 * have. DCP_ERR_ARG: a key is missing, or its value is of the wrong type or size. Both name the
 * key. After success every product of two of the sizes fits in 63 bits. */
int model_config_read(const json_t *config, model_config *out, dcp_error *err);
void model_config_free(model_config *c);
