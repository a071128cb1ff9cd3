/* Opening a step of shards: the rows of each tensor's datasets are sent to its home, so no rank has
 * the rows of all tensors.
 *
 * One rank reads and checks each file's tables, for all files at the same time. The ranks find the
 * union of the tensors' names (union.h), number the tensors, and send each row to its tensor's
 * home. The home checks whether the rows cover the tensor, and sends a few numbers about it to all
 * ranks. */
#pragma once

#include "reader/checkpoint.h"

/* Fills in the rest of a checkpoint that has files, their readers and their paths. Collective;
 * begins with comm_agree of `status`. Sets *moved to 1 if the step has moved on some rank. The
 * number of collectives depends neither on files nor on tensors; it is smaller if all ranks read
 * the same names. */
int reader_homes_open(dcp_checkpoint *ckpt, int status, int *moved, dcp_error *err);
