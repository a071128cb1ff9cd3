/* Reading a checkpoint's datasets by whole blocks, and checking each block. */
#pragma once

#include "reader/checkpoint.h"

/* Reads one block of a dataset into the cache and checks it. */
int reader_read_block(reader_block_cache *c, const reader_dataset *p, uint64_t number,
                      dcp_error *err);

/* Compares `sums`, the raw checksums of the dataset's blocks as they were read, with the stored
 * checksums. Returns DCP_ERR_CORRUPT if they differ. */
int reader_read_compare_sums(const reader_dataset *p, const uint64_t *sums, dcp_error *err);
/* Does the same for one block. */
int reader_read_compare_sum(const reader_dataset *p, uint64_t block, uint64_t sum, dcp_error *err);

/* Frees the caches of dcp_checkpoint_read, when the checkpoint is closed. */
void reader_read_free_caches(dcp_checkpoint *ckpt);
