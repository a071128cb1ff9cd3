/* Checksums of all bytes of a checkpoint's files, put together from parts that come in any order,
 * on several threads and ranks: of each block of each dataset, of what is outside of datasets, and
 * of tensors whose boxes in the shards are no runs of theirs. */
#ifndef DCP_LOAD_TALLY_H
#define DCP_LOAD_TALLY_H

#include "step/checkpoint.h"

typedef struct tally tally;

/* For files that have their tables; those without a path are left out. The checkpoint is borrowed,
 * and joined already, unless there is no more to know than its files. */
int tally_create(const dcp_checkpoint *ckpt, tally **out, dcp_error *err);
void tally_destroy(tally *t); /* NULL is ignored */

/* Adds bytes of file number `file`: a io_sweep_fn, whose context is the tally. */
void tally_add(void *t, size_t file, uint64_t offset, const unsigned char *data, uint64_t bytes);

/* The raw sums, to be joined over ranks by XOR. */
uint64_t *tally_sums(tally *t, uint64_t *n);

/* After that: what the bytes' checksums are. */
uint64_t tally_block(const tally *t, const step_file *file, const index_row *row, uint64_t block);
uint64_t tally_outside(const tally *t, const step_file *file);
/* Of the whole tensor, whatever its pieces. */
uint64_t tally_tensor(const tally *t, size_t tensor);

#endif
