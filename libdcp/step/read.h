/* Reads of a checkpoint's datasets by whole blocks, each checked. */
#pragma once

#include "step/checkpoint.h"

/* Reads and checks one block of a dataset, into the cache. */
int step_read_block(step_block_cache *c, const step_dataset *p, uint64_t number, dcp_error *err);
/* Bytes [offset, offset + bytes) of a dataset, out of such blocks. */
int step_read_bytes(step_block_cache *c, const step_dataset *p, uint64_t offset, uint64_t bytes,
                    unsigned char *out, dcp_error *err);

/* DCP_ERR_CORRUPT where `sums`, raw checksums of what was read of the dataset's blocks, are not
 * those of what was saved. */
int step_read_compare_sums(const step_dataset *p, const uint64_t *sums, dcp_error *err);
/* The same of one block. */
int step_read_compare_sum(const step_dataset *p, uint64_t block, uint64_t sum, dcp_error *err);

/* Frees what dcp_checkpoint_read has kept; for the close. */
void step_read_forget(dcp_checkpoint *ckpt);
