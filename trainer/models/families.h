/* The families of models, each with a reader of its config.json. */
#pragma once

#include <jansson.h>

#include <dcp/error.h>

#include "models/config_keys.h"
#include "models/model_config.h"
#include "models/positions.h"

/* The names of the parts of a block in Llama and its relatives. */
#define DECODER_BLOCK_NAMES                                                                        \
    .after = ".", .attention_norm = "input_layernorm", .q = "self_attn.q_proj",                    \
    .k = "self_attn.k_proj", .v = "self_attn.v_proj", .o = "self_attn.o_proj",                     \
    .mlp_norm = "post_attention_layernorm", .up = "mlp.up_proj", .down = "mlp.down_proj",          \
    .gate = "mlp.gate_proj"
#define DECODER_HEAD_NORMS .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"

/* Fills `out`, which the caller has zeroed. DCP_ERR_UNSUPPORTED: the config requires something that
 * is not supported. DCP_ERR_ARG: a key is missing, or its value has the wrong type or size. Both
 * messages name the key. After success every product of two of the sizes fits in 63 bits. */
int model_config_read(const json_t *config, model_config *out, dcp_error *err);
void model_config_free(model_config *c);
