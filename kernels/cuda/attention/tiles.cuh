/* Attention in fp32 by tiles, for head_dim up to TILES_DIM. The functions do nothing and return
 * nonzero if head_dim is larger, or the device has too little shared memory. */
#pragma once

#include "cuda/attention/view.cuh"

int attention_tiles_forward(kernels *k, const attention_view &v, float *out, float *lse,
                            const float *q, const float *key, const float *value);
int attention_tiles_backward(kernels *k, const attention_view &v, const attention_gradients &g);
