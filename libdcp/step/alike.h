/* Whether all ranks hold the same of a checkpoint: its tensors and its meta. What they have read of
 * different files they compare by checksums, and files can be made to have any of those. */
#pragma once

#include "step/checkpoint.h"

/* What one rank tells all others: a key that nobody knew before, and the sum under it. */
enum { STEP_ALIKE_KEY, STEP_ALIKE_SUM, STEP_ALIKE_WORDS };

int step_alike_tell(const dcp_checkpoint *ckpt, uint64_t told[STEP_ALIKE_WORDS], dcp_error *err);

/* DCP_ERR_CORRUPT: this rank holds something else than the one that told. */
int step_alike_check(const dcp_checkpoint *ckpt, const uint64_t told[STEP_ALIKE_WORDS],
                     dcp_error *err);
