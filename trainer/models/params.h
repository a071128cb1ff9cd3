/* The parameters that a config.json asks for, and comparing them with the tensors of files. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

#include "models/param.h"

/* The parameters that a config.json asks for: names, shapes, first values, and in which unit each
 * is. Needs neither kernels nor MPI, so that tools know a model, too. */

typedef struct model model;

/* Reads a Hugging Face config object: model_type "gpt2", "llama", "qwen3", "vit" (for image
 * classification) or "qwen3_tts"; or "mlp", our own. A key whose value asks for what we don't have
 * (rope scaling, another activation, sliding windows, dropout) is DCP_ERR_UNSUPPORTED and named; a
 * missing or wrong-typed key is DCP_ERR_ARG. The model has parameters and computes nothing:
 * model_create makes one that does. Ends with model_forget. */
int model_describe(const json_t *config, model **out, dcp_error *err);
void model_forget(model *m);

size_t model_units(const model *m);  /* L + 1; a talker's L are its predictor's, too */
size_t model_stages(const model *m); /* L + 2, of a talker twice */
size_t model_stage_unit(const model *m, size_t stage);
size_t model_unit_params(const model *m, size_t unit); /* parameters in that unit */
const model_param *model_unit_param(const model *m, size_t unit, size_t i);

/* Comparing a model's parameters with the tensors that files have of them, by name and shape. */

#define WEIGHTS_COPY                                                                               \
    "lm_head.weight" /* the embedding, where a file of tied weights has it twice                   \
                      */

/* The tensors found, ascending by path; `prefix` comes before each name. */
typedef struct found_tensors {
    const char *where;  /* for the message: a path */
    const char *prefix; /* "/model/", or "" */
    const dcp_tensor *const *list;
    size_t n;
    int weights_only; /* a start, not a step of a run: a classifier may be missing */
} found_tensors;

/* A name without the prefix; NULL where there is none. */
const dcp_tensor *model_weights_find(const found_tensors *found, const char *name);
/* The parameter's tensor among those found, by its name or, as files of a base model have it,
 * without the family's prefix; NULL where there is none. */
const dcp_tensor *model_weights_find_param(const found_tensors *found, const model_param *param);

/* One difference: without a tensor it is missing, without a parameter it is surplus, with both the
 * shapes differ. */
typedef struct weights_difference {
    const model_param *param;
    const dcp_tensor *tensor;
} weights_difference;
typedef void (*weights_tell)(void *ctx, weights_difference difference);

/* Calls tell(ctx) for each difference, first of the parameters in their order, then of surplus
 * tensors. Of weights alone a classifier may be missing. A surplus lm_head.weight of tied weights,
 * what a classifier does not use (pooler, mask token), a talker's speaker
 * encoder and old files' constants (rotary frequencies,
 * GPT-2's masks) are let pass. DCP_ERR_NO_MEMORY, or DCP_OK. */
int model_weights_compare(const model_param *const *params, size_t n, const found_tensors *found,
                          weights_tell tell, void *ctx, dcp_error *err);

/* "[4,3]" into `out`; cut where it does not fit. */
void model_weights_shape_text(uint32_t ndim, const uint64_t *shape, char *out, size_t size);
