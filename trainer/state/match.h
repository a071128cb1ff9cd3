/* Comparing a model's parameters with the tensors that a file has of them. */
#ifndef TRAINER_STATE_MATCH_H
#define TRAINER_STATE_MATCH_H

#include "../fsdp/layout.h"

/* The tensors found, ascending by path; `prefix` comes before each name. */
typedef struct found_tensors {
    const char *where;  /* for the message: a path */
    const char *prefix; /* "/model/", or "" */
    const dcp_tensor *const *list;
    size_t n;
} found_tensors;

/* The parameter's tensor among those found, by its name or, as files of a base model have it,
 * without the family's prefix; NULL where there is none. */
const dcp_tensor *match_find(const found_tensors *found, const model_param *param);

/* DCP_OK where there is exactly one tensor of the right shape for each parameter, and its type can
 * be widened to fp32. A surplus lm_head.weight (tied weights, saved twice), what a classifier
 * does not use (pooler, mask token) and old files' constants (rotary frequencies, GPT-2's masks)
 * are let pass. Else DCP_ERR_MISMATCH: the first tensor that differs and how, and how many others
 * do. */
int match_model(const fsdp_layout *layout, const found_tensors *found, dcp_error *err);

#endif
