/* The computation of a model: the activations of one micro-batch, and the forward and backward
 * passes of the stages. It depends only on the samples and the parameters, so it gives the same
 * bits on any rank. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "models/model.h"
#include "models/sample.h"
#include <dcp/error.h>

typedef struct model_run model_run;

/* Allocates all memory for one micro-batch of `batch` samples; later calls allocate none. */
int model_run_create(const model *m, uint64_t batch, uint64_t sequence, model_run **out,
                     dcp_error *err);
/* Makes a run over one text that arrives in pieces of up to `piece` tokens, for forward passes on
 * the CPU. It stores keys and values of up to `room` tokens; logits are computed only for a piece's
 * last token. DCP_ERR_ARG: the model is not a language model on the CPU, or has fewer than `room`
 * positions. */
int model_run_create_cached(const model *m, uint64_t piece, uint64_t room, model_run **out,
                            dcp_error *err);
/* Sets the next piece, of 1 to `piece` tokens, on which the stages will run. DCP_ERR_ARG: an id is
 * outside the vocabulary, or there is no room. */
int model_run_set_piece(model_run *run, const int32_t *ids, uint64_t n, dcp_error *err);
/* Computes how many bytes a run needs, without allocating them, and how many the kernels will store
 * for it in addition. */
int model_run_measure(const model *m, uint64_t batch, uint64_t sequence, uint64_t *bytes,
                      uint64_t *kept, dcp_error *err);
void model_run_destroy(model_run *run);

/* Sets the micro-batch: `batch` samples, copied. A target is the id that the token at that place
 * should predict, or the sample's class. SAMPLE_IGNORE is not counted. Gradients and losses are
 * multiplied by scales[losses]: the weight of each loss, divided by the number of its targets that
 * count in the whole step. DCP_ERR_ARG: an id or target is outside the vocabulary, or places are
 * invalid. */
int model_run_set_batch(model_run *run, const sample_batch *batch, const float *scales,
                        dcp_error *err);

/* poll(ctx) is called after each matrix product, so transfers in flight can proceed. NULL, the
 * initial value: nothing is called. */
void model_run_set_poll(model_run *run, void (*poll)(void *ctx), void *ctx);

/* Runs a stage's forward pass. params: the unit's whole parameters, in the unit's order. Parameters
 * and gradients are in the memory of the model's kernels. Stages run in order; the last one also
 * computes the loss. */
void model_forward(model_run *run, size_t stage, const float *const *params);
/* Runs a stage's backward pass. Stages run in reverse order, once for each forward pass, because
 * gradients replace activations. grads: the unit's gradients, +=; NULL for a parameter whose
 * gradient is not needed. */
void model_backward(model_run *run, size_t stage, const float *const *params, float *const *grads);
/* Waits for the last forward pass, and sets out[losses] to the negative log likelihood of its
 * micro-batch, summed over the counted targets and multiplied by the scales. The losses are 0
 * before the first pass. */
void model_run_losses(const model_run *run, double *out);
/* The sum of all losses. */
double model_run_loss(const model_run *run);
/* The logits of the last forward pass, [batch*sequence, vocab], or [vocab] with a cache. They are
 * in the memory of the model's kernels, and valid until the backward pass. *type: their type, which
 * is fp32 for a classifier. */
const void *model_run_logits(const model_run *run, kernels_type *type);
/* A talker's logits of all codes except the first, [groups - 1, *frames, codes]: the frames of all
 * samples in order, then some unused ones. Like the other logits, they are in the memory of the
 * model's kernels, and valid until the backward pass. */
const float *model_run_code_logits(const model_run *run, size_t *frames);
/* The class with the largest logit, or the first of several such classes; `classes` if a logit is
 * not a number. */
size_t model_likeliest(const float *logits, size_t classes);
