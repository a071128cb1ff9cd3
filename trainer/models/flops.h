/* What a sample costs: the operations of the matrix products that its forward and backward need, 2
 * for a multiplication and an addition. */
#pragma once

#include <stdint.h>

#include "models/model.h"

/* Floating-point operations of one sample. A linear layer of in x out elements takes 2 for each
 * element and row: for its output; for its weight's gradient, where that is trained; and for its
 * input's gradient, where something is trained that the input depends on. Attention takes 4 *
 * heads * head_dim * length^2 forwards, and twice that backwards, where its input depends on
 * something trained. Lookups, norms, biases and activations count nothing, nor does what is
 * computed again.
 * trained: whether each parameter is, in the order of units and places; NULL: all are. sequence:
 * tokens of a sample. */
double model_flops_per_sample(const model *m, uint64_t sequence, const unsigned char *trained);
