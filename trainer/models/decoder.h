/* Reading the keys of a decoder: of Llama and its kin, and what other transformers share. */
#pragma once

#include "models/keys.h"
#include "models/model_config.h"
#include "models/windows.h"

/* Names of the parts of a block of Llama and its kin. */
#define DECODER_BLOCK_NAMES                                                                        \
    .after = ".", .attention_norm = "input_layernorm", .q = "self_attn.q_proj",                    \
    .k = "self_attn.k_proj", .v = "self_attn.v_proj", .o = "self_attn.o_proj",                     \
    .mlp_norm = "post_attention_layernorm", .up = "mlp.up_proj", .down = "mlp.down_proj",          \
    .gate = "mlp.gate_proj"
#define DECODER_HEAD_NORMS .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"

/* Sizes and the rest of a decoder's keys; what `c` has before are defaults. */
int model_decoder_read(const model_keys *keys, model_windows_of windows, model_config *c,
                       dcp_error *err);
int model_decoder_check_heads(const model_keys *keys, const model_config *c, dcp_error *err);
/* heads and head_dim where the config gives hidden_size / heads, by these names. */
int model_decoder_take_head_dim(model_config *c, const char *hidden, const char *heads,
                                dcp_error *err);
