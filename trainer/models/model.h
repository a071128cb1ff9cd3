/* A model as the trainer sees it, and what a sample costs. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

#include "kernels/kernels.h"
#include "models/params.h"
#include "models/sample.h"

/* A model as the trainer sees it: parameters grouped in units, and stages that run in order.
 *
 * A unit is what FSDP gathers and reduces at once; unit 0 is the root (embedding, final norm,
 * lm_head), which stays gathered during a step; units 1..L are the transformer blocks. A stage is
 * one piece of the computation and uses the parameters of one unit. For L blocks the stages are: 0
 * embedding (unit 0), 1..L blocks (units 1..L), L+1 final norm, head and loss (unit 0). Tied
 * weights are one parameter of one unit. A plain MLP's blocks are its hidden layers. A talker's
 * stages are followed by those of its predictor: what it sees (unit 0), its blocks (the units
 * behind those of the talker's) and its heads (unit 0).
 *
 * It computes in fp32, or in bf16: then parameters are used as rounded to bf16, whether or not the
 * caller rounded them before, and so are the operands of all matrix products, whose sums are fp32;
 * those of attention's on a GPU alone. What lies between the gated MLP's products is bf16. The
 * residual stream, norms, softmax, loss and gradients of parameters stay fp32. */

/* Makes a model that computes from a Hugging Face config object; as model_describe. Needs no memory
 * for parameters: those are the caller's. */
int model_create(const json_t *config, model **out, dcp_error *err);
void model_destroy(model *m);
/* Activation checkpointing (Chen et al. 2016): runs that are created afterwards keep what enters
 * each block alone, and compute its forward again before its backward. Same bits. */
void model_set_checkpointing(model *m, int on);
/* Whether samples of tokens may hold several documents, of which none sees another, nor counts its
 * positions on. Before any run is created. */
void model_set_packed(model *m, int on);
/* How many frames a sample has room for, of a talker; others have none. Before any run is created.
 */
void model_set_frames(model *m, uint64_t frames);
/* What it computes with, instead of the CPU: borrowed. Before any run is created. */
void model_set_kernels(model *m, kernels *k);
/* What it computes in; fp32 unless this is called, before any run is created. */
void model_set_type(model *m, kernels_type type);
kernels_type model_type(const model *m);

/* Whether the stage uses parameter i of its unit. Tied weights are used by two stages, as are a
 * talker's tables of codes. */
int model_stage_uses(const model *m, size_t stage, size_t i);
int model_speaks(const model *m);            /* whether its samples are of speech */
uint64_t model_max_sequence(const model *m); /* max_position_embeddings; 0: no tokens */
/* What a sample of this model is; `sequence`: tokens of a sample. */
sample_shape model_sample(const model *m, uint64_t sequence);

/* What a sample costs: the operations of the matrix products that its forward and backward need, 2
 * for a multiplication and an addition. */

/* Floating-point operations of one sample. A linear layer of in x out elements takes 2 for each
 * element and row: for its output; for its weight's gradient, where that is trained; and for its
 * input's gradient, where something is trained that the input depends on. Attention takes 4 *
 * heads * head_dim * length^2 forwards, and twice that backwards, where its input depends on
 * something trained. Lookups, norms, biases and activations count nothing, nor does what is
 * computed again.
 * trained: whether each parameter is, in the order of units and places; NULL: all are. sequence:
 * tokens of a sample. */
double model_flops_per_sample(const model *m, uint64_t sequence, const unsigned char *trained);
