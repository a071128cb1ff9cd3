/* Sliding windows: how far back the tokens of each layer see. */
#pragma once

#include "models/keys.h"

/* When a family has them. */
typedef enum model_windows_of {
    MODEL_WINDOWS_NEVER,
    MODEL_WINDOWS_ASKED,  /* with use_sliding_window, from layer max_window_layers on */
    MODEL_WINDOWS_ALWAYS, /* unless sliding_window is null */
} model_windows_of;

/* layer_types, where it is given, tells for each layer. *out[layers]: how many tokens up to itself
 * a token sees, 0: all; allocated. NULL: all in every layer. */
int model_windows_read(const model_keys *keys, model_windows_of family, uint64_t layers,
                       uint64_t **out, dcp_error *err);
