/* The parameters that a config.json describes, and their comparison with the tensors of files. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

#include "models/param.h"

/* The parameters that a config.json describes: names, shapes, initial values, and each one's unit.
 * This code needs neither kernels nor MPI, so tools use it, too. */

typedef struct model model;

/* Reads a Hugging Face config object with a model_type "gpt2", "llama", "mistral", "qwen2",
 * "qwen3", "vit" (for image classification) or "qwen3_tts", or with dcp-train's own "mlp".
 * DCP_ERR_UNSUPPORTED: the value of a key requires something that is not supported; the message
 * names the key. DCP_ERR_ARG: a key is missing or has the wrong type. The model has parameters but
 * cannot compute; model_create makes one that can. Free it with model_free_described. */
int model_describe(const json_t *config, model **out, dcp_error *err);
void model_free_described(model *m);

/* Returns 1 + the number of blocks, including the blocks of a talker's predictor. */
size_t model_units(const model *m);
/* Returns 2 + the number of blocks. For a talker, adds 2 + the number of its predictor's blocks. */
size_t model_stages(const model *m);
size_t model_stage_unit(const model *m, size_t stage);
size_t model_unit_params(const model *m, size_t unit); /* parameters in that unit */
const model_param *model_unit_param(const model *m, size_t unit, size_t i);

/* Comparing a model's parameters with the tensors of files, by name and shape. */

#define WEIGHTS_COPY                                                                               \
    "lm_head.weight" /* in a file of tied weights, an optional second copy of the embedding */

/* The tensors found, ascending by path; `prefix` precedes each name. */
typedef struct found_tensors {
    const char *where;  /* a path, for messages */
    const char *prefix; /* "/model/", or "" */
    const dcp_tensor *const *list;
    size_t n;
    bool weights_only; /* initial weights, not a step of a run: a classifier may be missing */
} found_tensors;

/* name: without the prefix. NULL if there is no such tensor. */
const dcp_tensor *model_weights_find(const found_tensors *found, const char *name);
/* Finds the parameter's tensor by its name or, as in files of a base model, without the family's
 * prefix; NULL if there is none. */
const dcp_tensor *model_weights_find_param(const found_tensors *found, const model_param *param);

/* One difference. tensor NULL: the parameter is missing; param NULL: the tensor is surplus;
 * otherwise their shapes differ. */
typedef struct weights_difference {
    const model_param *param;
    const dcp_tensor *tensor;
} weights_difference;
typedef void (*weights_difference_fn)(void *ctx, weights_difference difference);

/* Calls report(ctx, difference) for each difference: first for the parameters in their order, then
 * for surplus tensors. With weights_only, a missing classifier is not a difference. The following
 * surplus tensors are not differences either: an lm_head.weight of tied weights, tensors that a
 * classifier does not use (pooler, mask token), a talker's speaker encoder, and constants of old
 * files (rotary frequencies, GPT-2's masks). Returns DCP_ERR_NO_MEMORY or DCP_OK. */
int model_weights_compare(const model_param *const *params, size_t n, const found_tensors *found,
                          weights_difference_fn report, void *ctx, dcp_error *err);

/* Writes "[4,3]" into `out`, truncated if it does not fit. */
void model_weights_shape_text(uint32_t ndim, const uint64_t *shape, char *out, size_t size);
