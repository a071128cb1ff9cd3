/* Whether all ranks hold the same of a checkpoint: its tensors and its meta. What they have read of
 * different files they compare by checksums, and files can be made to have any of those. */
#pragma once

#include "reader/checkpoint.h"

/* What one rank tells all others: a key that nobody knew before, and the sum under it. */
enum { READER_ALIKE_KEY, READER_ALIKE_SUM, READER_ALIKE_WORDS };

int reader_alike_tell(const dcp_checkpoint *ckpt, uint64_t told[READER_ALIKE_WORDS],
                      dcp_error *err);

/* DCP_ERR_CORRUPT: this rank holds something else than the one that told. */
int reader_alike_check(const dcp_checkpoint *ckpt, const uint64_t told[READER_ALIKE_WORDS],
                       dcp_error *err);

/* Files' tables become a checkpoint: addresses, metas, and the datasets of each tensor. */

/* Joins the files' rows, which are all here, into tensors; checks that shards belong together and
 * cover every tensor. */
int reader_join_files(dcp_checkpoint *ckpt, dcp_error *err);

/* Gives the files, of which the user blocks are known, their addresses. */
int reader_join_place(dcp_checkpoint *ckpt, dcp_error *err);

/* Reads the metas of the files that have a path: they are of one state, and of the folder's step.
 */
int reader_join_metas(dcp_checkpoint *ckpt, dcp_error *err);
/* The first file's meta: fills ckpt->json, state_id and step. The others' agree with it. */
int reader_join_first_meta(dcp_checkpoint *ckpt, size_t first, dcp_error *err);
int reader_join_check_meta(dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err);

/* DCP_ERR_CORRUPT: that of file `number` is of another state than that of file `first`. */
int reader_join_fail_meta(const dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err);

/* DCP_ERR_CORRUPT: it is of the other layout. */
int reader_join_check_layout(const dcp_checkpoint *ckpt, const format_file *file, dcp_error *err);

/* Both DCP_ERR_CORRUPT, naming the tensor. */
int reader_join_fail_shape(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err);
int reader_join_fail_cover(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err);

/* Of `known`, in the order of the tensor's datasets, [*first, *end) are all that can share elements
 * with the box. */
void reader_join_near(const reader_tensor *t, const reader_known *known, const dcp_box *box,
                      size_t *first, size_t *end);
