/* Positions of tokens: rotary positions, and the sliding windows of layers. */
#pragma once

#include <stdbool.h>

#include "models/config_keys.h"

/* Rotary positions (Su et al. 2021): what a config.json specifies, and the frequencies with which
 * pairs of a head's elements rotate. A model that was extended beyond the positions of its first
 * training rotates more slowly: all pairs of elements equally (linear), or only pairs that make few
 * turns within the positions of the first training (llama3, yarn). */

typedef enum model_rope_type {
    MODEL_ROPE_DEFAULT,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_LLAMA3,
    MODEL_ROPE_YARN, /* Peng et al. 2023 */
} model_rope_type;

typedef struct model_rope {
    model_rope_type type;
    double theta;     /* 0: no rotary positions */
    double factor;    /* frequencies are divided by this factor */
    double positions; /* of the first training, for llama3 and yarn */
    double seldom;    /* pairs with fewer turns within these positions are slowed down */
    double often;     /* pairs with more turns are unchanged; pairs in between are interpolated */
    double scale;     /* the factor of cosines and sines */
    bool whole;       /* yarn: the bounds are rounded to whole pairs */
} model_rope;

/* As in transformers, rope_scaling (the older key) takes precedence over rope_parameters (the newer
 * one), and rope_theta within either takes precedence over the config's own rope_theta.
 * max_positions: the config's max_position_embeddings. */
int model_rope_read(const model_keys *keys, uint64_t max_positions, model_rope *out,
                    dcp_error *err);

/* out[dim/2], in fp32 as transformers computes them. */
void model_rope_frequencies(const model_rope *rope, size_t dim, float *out);

/* Sliding windows: how far back the tokens of each layer see. */

/* The condition under which a family has windows. */
typedef enum model_windows_of {
    MODEL_WINDOWS_NEVER,
    MODEL_WINDOWS_ASKED,  /* with use_sliding_window, starting at layer max_window_layers */
    MODEL_WINDOWS_ALWAYS, /* unless sliding_window is null */
} model_windows_of;

/* layer_types, if given, determines each layer's window. *out[layers]: the number of tokens that a
 * token sees, counted backwards from itself; 0: no limit. Allocated; NULL: no limit in any
 * layer. */
int model_windows_read(const model_keys *keys, model_windows_of family, uint64_t layers,
                       uint64_t **out, dcp_error *err);
