/* Attention a row at a time, for any head_dim. */
#ifndef KERNELS_CUDA_ROWS_CUH
#define KERNELS_CUDA_ROWS_CUH

#include "cuda/attention/view.cuh"

void attention_rows_forward(kernels *k, const attention_view &v, float *out, float *lse,
                            const float *q, const float *key, const float *value);
void attention_rows_backward(kernels *k, const attention_view &v, const attention_gradients &g);

#endif
