/* Files' tables become a checkpoint: addresses, metas, and the datasets of each tensor. */
#pragma once

#include "step/checkpoint.h"

/* Joins the files' rows, which are all here, into tensors; checks that shards belong together and
 * cover every tensor. */
int step_join_files(dcp_checkpoint *ckpt, dcp_error *err);

/* Gives the files, of which the user blocks are known, their addresses. */
int step_join_place(dcp_checkpoint *ckpt, dcp_error *err);

/* Reads the metas of the files that have a path: they are of one state, and of the folder's step.
 */
int step_join_metas(dcp_checkpoint *ckpt, dcp_error *err);
/* The first file's meta: fills ckpt->json, state_id and step. The others' agree with it. */
int step_join_first_meta(dcp_checkpoint *ckpt, size_t first, dcp_error *err);
int step_join_check_meta(dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err);

/* DCP_ERR_CORRUPT: that of file `number` is of another state than that of file `first`. */
int step_join_fail_meta(const dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err);

/* DCP_ERR_CORRUPT: it is of the other layout. */
int step_join_check_layout(const dcp_checkpoint *ckpt, const step_file *file, dcp_error *err);

/* Both DCP_ERR_CORRUPT, naming the tensor. */
int step_join_fail_shape(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err);
int step_join_fail_cover(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err);

/* Of `known`, in the order of the tensor's datasets, [*first, *end) are all that can share elements
 * with the box. */
void step_join_near(const step_tensor *t, const step_known *known, const dcp_box *box,
                    size_t *first, size_t *end);
