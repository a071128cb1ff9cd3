/* What a decoder's Hugging Face config.json says, checked and with defaults filled in. */
#ifndef TRAINER_MODELS_CONFIG_H
#define TRAINER_MODELS_CONFIG_H

#include <jansson.h>
#include <stdint.h>

#include "dcp/error.h"

typedef struct decoder_config {
    uint64_t vocab;
    uint64_t hidden;
    uint64_t intermediate;
    uint64_t layers;
    uint64_t heads;
    uint64_t kv_heads;
    uint64_t head_dim;
    uint64_t max_positions;
    double rope_theta;
    double norm_eps;
    double init_std;
    int tied;    /* lm_head is embed_tokens */
    int qk_norm; /* Qwen3: RMSNorm of each head's query and key before their rotation */
} decoder_config;

/* DCP_ERR_UNSUPPORTED: the config asks for what we don't have. DCP_ERR_ARG: a key is missing, or
 * its value is of the wrong type or size. Both name the key. After success every product of two of
 * the sizes fits in 63 bits. */
int decoder_config_read(const json_t *config, decoder_config *out, dcp_error *err);

#endif
