/* Comparing a model's parameters with the tensors that files have of them, by name and shape. */
#pragma once

#include "models/params.h"

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
