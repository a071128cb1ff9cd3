/* The computation of a model: the activations of one micro-batch, and its stages forwards and
 * backwards. It depends on nothing but the samples and the parameters: same bits on any rank. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "models/model.h"
#include "models/sample.h"
#include <dcp/error.h>

typedef struct model_run model_run;

/* Memory for one micro-batch of `batch` samples: every allocation is made here. */
int model_run_create(const model *m, uint64_t batch, uint64_t sequence, model_run **out,
                     dcp_error *err);
/* A run over one text that comes in pieces of up to `piece` tokens, forwards alone, on the CPU.
 * Keys and values of up to `room` tokens are kept, and the logits are those of a piece's last
 * token. DCP_ERR_ARG: no model of text, or one that sees fewer positions. */
int model_run_create_cached(const model *m, uint64_t piece, uint64_t room, model_run **out,
                            dcp_error *err);
/* Sets the next piece, of 1 to `piece` tokens, before its stages. DCP_ERR_ARG: an id outside the
 * vocabulary, or no room. */
int model_run_set_piece(model_run *run, const int32_t *ids, uint64_t n, dcp_error *err);
/* The bytes that it takes, without taking them, and those that the kernels will keep for it
 * besides. */
int model_run_measure(const model *m, uint64_t batch, uint64_t sequence, uint64_t *bytes,
                      uint64_t *kept, dcp_error *err);
void model_run_destroy(model_run *run);

/* Sets the micro-batch: `batch` samples, copied. A target is what the token at that
 * place should predict, or the sample's class; SAMPLE_IGNORE: not counted. Gradients and loss are
 * multiplied by scales[losses] (the loss's weight / its targets counted in the whole step).
 * DCP_ERR_ARG: an id or target outside the vocabulary, or places that are none. */
int model_run_set_batch(model_run *run, const sample_batch *batch, const float *scales,
                        dcp_error *err);

/* poll(ctx) is called after each matrix product, so that transfers that are on their way proceed
 * meanwhile. NULL: none, as after the creation. */
void model_run_set_poll(model_run *run, void (*poll)(void *ctx), void *ctx);

/* Runs a stage. params: the unit's parameters, whole, in the unit's order, in the memory of the
 * model's kernels, as gradients are. Stages run in order; the last one also computes the loss. */
void model_forward(model_run *run, size_t stage, const float *const *params);
/* Runs a stage backwards, in reverse order, once for each forward: gradients take the place of
 * activations. grads: the unit's gradients, +=; NULL for a parameter whose gradient nobody asks
 * for. */
void model_backward(model_run *run, size_t stage, const float *const *params, float *const *grads);
/* out[losses]: sums over the counted targets of the last micro-batch that went forward of the
 * negative log likelihood, times scale; 0 before. Waits for it. */
void model_run_losses(const model_run *run, double *out);
/* Their sum. */
double model_run_loss(const model_run *run);
/* Logits of the last forward [batch*sequence, vocab], with a cache [vocab], in the memory of the
 * model's kernels; valid until the backward. *type: what they are. Classifiers' are fp32. */
const void *model_run_logits(const model_run *run, kernels_type *type);
/* A talker's of codes but the first, [groups - 1, *frames, codes]: frames of all samples, one after
 * the other, then some that are none. Likewise. */
const float *model_run_code_logits(const model_run *run, size_t *frames);
/* The class with the largest logit, the first of them; `classes` where a logit is no number. */
size_t model_likeliest(const float *logits, size_t classes);
