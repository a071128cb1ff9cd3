/* Opening a step of shards: the rows of a tensor's datasets go to its home rank, so that no rank
 * has those of all tensors.
 *
 * Each file's tables are read and checked by one rank, all at the same time. The ranks find the
 * union of the tensors' names (union.h), number them, and send each row to its tensor's home. That
 * looks whether the rows cover the tensor, and tells all ranks a few numbers of it. */
#pragma once

#include "reader/checkpoint.h"

/* Collective, with files, their readers and paths, beginning with comm_agree of `status`: fills in
 * the rest. *moved: becomes 1 where the step has moved on some rank. The number of collectives
 * depends neither on files nor on tensors; it is less where all ranks read the same names. */
int reader_homes_open(dcp_checkpoint *ckpt, int status, int *moved, dcp_error *err);
