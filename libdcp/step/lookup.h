/* Looking for a tensor's rows in the index of a file, without reading all of it. */
#pragma once

#include "comm/message.h"
#include "step/checkpoint.h"

/* Appends the file's rows of the tensor, packed and without blocks (packed.h). */
int step_lookup_rows(const dcp_checkpoint *ckpt, const step_tensor *t, step_file *file,
                     comm_message *out, dcp_error *err);

/* The checksums of the dataset's blocks, malloc'd. Reads the file's index once, to know where each
 * row's blocks are. */
int step_lookup_crcs(step_dataset *dataset, uint64_t **out, dcp_error *err);
