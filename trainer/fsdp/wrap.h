/* Which parameters form a unit: what is gathered and reduced at once. */
#ifndef TRAINER_FSDP_WRAP_H
#define TRAINER_FSDP_WRAP_H

#include <jansson.h>

#include "fsdp/layout.h"
#include "fsdp/strategy.h"

/* The layout of a model on rank `rank` of `world`, which need not exist: nothing is communicated.
 * Unit 0 is the root. Each block is a unit; with strategy->min_params, consecutive blocks are
 * joined until they have so many parameters, and the root takes those that are left. Tied weights
 * are one parameter. frozen: list of globs of names. DCP_ERR_ARG: one of them matches no parameter,
 * or together they match all. */
int fsdp_layout_of_model(const model *m, const json_t *frozen, const fsdp_strategy *strategy,
                         int rank, int world, fsdp_layout **out, dcp_error *err);

#endif
