/* Whether a checkpoint has one tensor of the right shape for each of a model's parameters. */
#pragma once

#include "fsdp/shard_layout.h"
#include "models/weights_check.h"

/* Reads a box of a tensor that was found, whose elements follow each other, into `out`. */
typedef int (*state_match_read)(void *from, const dcp_tensor *tensor, const dcp_box *box, void *out,
                                dcp_error *err);

/* DCP_OK where there is exactly one tensor of the right shape for each parameter, and its type can
 * be widened to fp32. Of weights only a classifier may be missing, which is told in a warning on
 * rank 0; what may be surplus is model_weights_compare's. Else DCP_ERR_MISMATCH: the first tensor
 * that differs and how, and how many others do.
 * Where the embedding was found a second time, as lm_head.weight, this rank's rows of the two are
 * read and compared. DCP_ERR_MISMATCH: they differ, so the weights are not tied as the model's are.
 * Not collective. */
int state_match_weights(const fsdp_layout *layout, const found_tensors *found,
                        state_match_read read, void *from, dcp_error *err);
