/* Checksums of all bytes of a checkpoint's files. The bytes may arrive in any order, on several
 * threads and ranks. There is a sum for each block of each dataset, and one per file for the bytes
 * outside datasets. A tensor has a sum of its own if one of its datasets is not contiguous in the
 * tensor. */
#pragma once

#include "reader/checkpoint.h"

typedef struct verify_sums verify_sums;

/* Prepares the sums of the files whose tables were read; files without a path are left out. The
 * checkpoint is borrowed. Either its files have been combined into one step with tensors, or it has
 * files but no tensors. */
int verify_sums_create(const dcp_checkpoint *ckpt, verify_sums **out, dcp_error *err);
void verify_sums_destroy(verify_sums *t); /* NULL is ignored */

/* Adds bytes of file number `file`. This is an io_scan_fn, whose context is the verify_sums. */
void verify_sums_add(void *t, size_t file, uint64_t offset, const unsigned char *data,
                     uint64_t bytes);

/* Returns the raw sums, which the caller has to join over ranks by XOR. */
uint64_t *verify_sums_raw(verify_sums *t, uint64_t *n);

/* Called after the sums were joined. Return the checksums of the bytes that were added. */
uint64_t verify_sums_block(const verify_sums *t, const format_file *file, const format_row *row,
                           uint64_t block);
uint64_t verify_sums_outside(const verify_sums *t, const format_file *file);
/* Returns the checksum of the whole tensor, however it is divided into datasets. */
uint64_t verify_sums_tensor(const verify_sums *t, size_t tensor);
