/* A model as the trainer sees it, and what a sample costs. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

#include "kernels/kernels.h"
#include "models/params.h"
#include "models/sample.h"

/* A model as the trainer sees it: parameters grouped in units, and stages that run in order.
 *
 * FSDP gathers and reduces each unit as a whole. Unit 0 is the root (embedding, final norm,
 * lm_head), which stays gathered during a step; units 1..L are the transformer blocks. A stage is
 * one piece of the computation and uses the parameters of one unit. For L blocks the stages are: 0
 * embedding (unit 0), 1..L blocks (units 1..L), L+1 final norm, head and loss (unit 0). Tied
 * weights are one parameter of one unit. A plain MLP's blocks are its hidden layers. A talker's
 * stages are followed by the stages of its predictor: the input (unit 0), the blocks (the units
 * after the talker's blocks) and the heads (unit 0).
 *
 * A model computes in fp32 or in bf16. In bf16, it rounds parameters to bf16 before use, even if
 * the caller has already rounded them. It also rounds the operands of all matrix products, whose
 * sums are fp32; the operands of attention are rounded only on a GPU. Arrays between the gated
 * MLP's products are bf16. The residual stream, norms, softmax, loss and gradients of parameters
 * remain fp32. */

/* Makes a model from a Hugging Face config object, as model_describe does, but one that can
 * compute. Allocates no parameters: the caller provides them. */
int model_create(const json_t *config, model **out, dcp_error *err);
void model_destroy(model *m);
/* Activation checkpointing (Chen et al. 2016): runs that are created afterwards store only the
 * input of each block, and compute its forward pass again before its backward pass. The results
 * have the same bits as without checkpointing. */
void model_set_checkpointing(model *m, bool on);
/* Allows samples of tokens to hold several documents. A document does not see the others, and has
 * positions of its own. Must be called before any run is created. */
void model_set_packed(model *m, bool on);
/* The number of frames for which a talker's sample has room; other models have none. Must be called
 * before any run is created. */
void model_set_frames(model *m, uint64_t frames);
/* Selects the kernels with which the model computes, instead of the CPU's; borrowed. Must be called
 * before any run is created. */
void model_set_kernels(model *m, kernels *k);
/* Selects the type in which the model computes; the default is fp32. Must be called before any run
 * is created. */
void model_set_type(model *m, kernels_type type);
kernels_type model_type(const model *m);

/* Returns true if the stage uses parameter i of its unit. Tied weights, and a talker's tables of
 * codes, are used by two stages. */
bool model_stage_uses(const model *m, size_t stage, size_t i);
bool model_speaks(const model *m);           /* true if its samples are speech */
uint64_t model_max_sequence(const model *m); /* max_position_embeddings, or 0 without tokens */
/* The shape of this model's samples. sequence: tokens per sample. */
sample_shape model_sample(const model *m, uint64_t sequence);

/* The cost of one sample: the floating-point operations of the matrix products of its forward and
 * backward passes, where a multiplication and its addition count as 2. A linear layer of in x out
 * elements costs 2 per element and row for each of these: its output; its weight's gradient, if the
 * weight is trained; and its input's gradient, if the input depends on something trained. The
 * forward pass of attention costs 4 * heads * head_dim * length^2; its backward pass costs twice
 * that if its input depends on something trained. Lookups, norms, biases, activations and repeated
 * computations are not counted. trained: for each parameter, in the order of units and places,
 * whether it is trained; NULL: all are. sequence: tokens per sample. */
double model_flops_per_sample(const model *m, uint64_t sequence, const unsigned char *trained);
