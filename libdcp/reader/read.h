/* Reads of a checkpoint's datasets. */
#pragma once

#include "reader/checkpoint.h"

/* Reads of a checkpoint's datasets by whole blocks, each checked. */

/* Reads and checks one block of a dataset, into the cache. */
int reader_read_block(reader_block_cache *c, const reader_dataset *p, uint64_t number,
                      dcp_error *err);

/* DCP_ERR_CORRUPT where `sums`, raw checksums of what was read of the dataset's blocks, are not
 * those of what was saved. */
int reader_read_compare_sums(const reader_dataset *p, const uint64_t *sums, dcp_error *err);
/* The same of one block. */
int reader_read_compare_sum(const reader_dataset *p, uint64_t block, uint64_t sum, dcp_error *err);

/* Frees what dcp_checkpoint_read has kept; for the close. */
void reader_read_forget(dcp_checkpoint *ckpt);
