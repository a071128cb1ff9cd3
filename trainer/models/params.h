/* The parameters that a config.json asks for: names, shapes, first values, and in which unit each
 * is. Needs neither kernels nor MPI, so that tools know a model, too. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "models/param.h"
#include <dcp/error.h>

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
