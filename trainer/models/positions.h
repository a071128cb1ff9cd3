/* Positions of tokens: rotary positions, and the sliding windows of layers. */
#pragma once

#include "models/config_keys.h"

/* Rotary positions (Su et al. 2021): what a config.json specifies, and the frequencies by which
 * heads turn. Models with more positions than in their first training turn more slowly: all pairs
 * of elements alike (linear), or only those that turn seldom within the first positions (llama3,
 * yarn). */

typedef enum model_rope_type {
    MODEL_ROPE_DEFAULT,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_LLAMA3,
    MODEL_ROPE_YARN, /* Peng et al. 2023 */
} model_rope_type;

typedef struct model_rope {
    model_rope_type type;
    double theta;     /* 0: no rotary positions */
    double factor;    /* frequencies are divided by it */
    double positions; /* of the first training, for llama3 and yarn */
    double seldom;    /* pairs with fewer turns within these positions are slowed down */
    double often;     /* pairs with more turns are unchanged; those between are interpolated */
    double scale;     /* of cosines and sines */
    int whole;        /* yarn: the bounds are rounded to whole pairs */
} model_rope;

/* As in transformers, rope_scaling (older) takes precedence over rope_parameters (newer), and the
 * rope_theta of either over the config's own. max_positions: the config's
 * max_position_embeddings. */
int model_rope_read(const model_keys *keys, uint64_t max_positions, model_rope *out,
                    dcp_error *err);

/* out[dim/2], in fp32 as transformers computes them. */
void model_rope_frequencies(const model_rope *rope, size_t dim, float *out);

/* Sliding windows: how far back the tokens of each layer see. */

/* When a family has them. */
typedef enum model_windows_of {
    MODEL_WINDOWS_NEVER,
    MODEL_WINDOWS_ASKED,  /* with use_sliding_window, starting at layer max_window_layers */
    MODEL_WINDOWS_ALWAYS, /* unless sliding_window is null */
} model_windows_of;

/* layer_types, if given, determines each layer's window. *out[layers]: the number of tokens, up to
 * itself, that a token sees; 0: all. Allocated; NULL: all in every layer. */
int model_windows_read(const model_keys *keys, model_windows_of family, uint64_t layers,
                       uint64_t **out, dcp_error *err);
