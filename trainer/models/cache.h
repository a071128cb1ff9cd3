/* The cache of keys and values: what attention needs of the earlier pieces of a text. */
#pragma once

#include "models/parts.h"

void model_cache_lay_out(model_run *run, arena *a);

/* Where keys and values of the layer are, once the block has computed those of the piece at hand.
 * With a cache it computes them to their place behind those of earlier pieces. */
kv_rows model_cache_place(model_run *run, size_t layer);
