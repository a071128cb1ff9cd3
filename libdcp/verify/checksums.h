/* Checksums of all bytes of a checkpoint's files. The bytes may come in any order, on several
 * threads and ranks. There is a sum for each block of each dataset, one for each file of what is
 * outside of datasets, and one for each tensor that shards cut so that a dataset is not one run of
 * its bytes. */
#pragma once

#include "reader/checkpoint.h"

typedef struct verify_sums verify_sums;

/* Of the files that have their tables; files without a path are left out. The checkpoint is
 * borrowed. It is joined, or has files and no tensors. */
int verify_sums_create(const dcp_checkpoint *ckpt, verify_sums **out, dcp_error *err);
void verify_sums_destroy(verify_sums *t); /* NULL is ignored */

/* Adds bytes of file number `file`: a io_sweep_fn, whose context is the verify_sums. */
void verify_sums_add(void *t, size_t file, uint64_t offset, const unsigned char *data,
                     uint64_t bytes);

/* The raw sums, to be joined over ranks by XOR. */
uint64_t *verify_sums_raw(verify_sums *t, uint64_t *n);

/* After that: what the bytes' checksums are. */
uint64_t verify_sums_block(const verify_sums *t, const format_file *file, const format_row *row,
                           uint64_t block);
uint64_t verify_sums_outside(const verify_sums *t, const format_file *file);
/* Of the whole tensor, whatever its datasets. */
uint64_t verify_sums_tensor(const verify_sums *t, size_t tensor);
