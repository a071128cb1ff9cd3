/* Attention on tensor cores, for head_dim up to TILES_DIM. `type` is the type of the arrays;
 * operands of products are rounded to bf16. Requires attention_tensor_scratch bytes of scratch,
 * aligned to 64. */
#pragma once

#include "cuda/attention/view.cuh"

typedef struct attention_backward {
    float *dq, *dkey;
    void *dvalue;
    const void *dout, *out, *q, *key, *value;
    const float *lse;
} attention_backward;

size_t attention_tensor_scratch(const attention_view &v, kernels_type type);
void attention_tensor_forward(kernels *k, const attention_view &v, kernels_type type, void *out,
                              float *lse, const void *q, const void *key, const void *value,
                              void *scratch);
void attention_tensor_backward(kernels *k, const attention_view &v, kernels_type type,
                               const attention_backward &b, void *scratch);
