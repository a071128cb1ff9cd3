/* Reads of a checkpoint's datasets by whole blocks, each checked. */
#ifndef DCP_STEP_READ_H
#define DCP_STEP_READ_H

#include "step/checkpoint.h"

/* Reads and checks one block of a dataset, into ckpt->cache. */
int step_read_block(dcp_checkpoint *ckpt, const step_dataset *p, uint64_t number, dcp_error *err);
/* Bytes [offset, offset + bytes) of a dataset, out of such blocks. */
int step_read_bytes(dcp_checkpoint *ckpt, const step_dataset *p, uint64_t offset, uint64_t bytes,
                    unsigned char *out, dcp_error *err);

#endif
