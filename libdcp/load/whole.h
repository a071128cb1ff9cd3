/* A whole tensor's checksum from those of the boxes that files hold of it. */
#ifndef DCP_LOAD_WHOLE_H
#define DCP_LOAD_WHOLE_H

#include "load/checkpoint.h"

/* 1 where each piece is one run of the tensor's bytes: cut on dimension 0, for example. Only then
 * do the pieces' checksums give the tensor's. */
int whole_is_runs(const dcp_checkpoint *ckpt, const ckpt_tensor *t);

/* The tensor's checksum, as the tables have it; its pieces are runs. */
uint64_t whole_crc(const dcp_checkpoint *ckpt, const ckpt_tensor *t);

#endif
