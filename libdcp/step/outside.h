/* The bytes of a file that are neither user block nor tensor data. */
#ifndef DCP_STEP_OUTSIDE_H
#define DCP_STEP_OUTSIDE_H

#include "step/tables.h"

typedef void (*step_outside_progress_fn)(void *ctx, uint64_t bytes);

/* Reads all bytes of the file that are neither user block nor tensor data, through file->plain;
 * *intact: they are what was saved. `buffer` has BLOCK_BYTES; `progress` may be NULL. */
int step_outside_check(const step_file *file, unsigned char *buffer,
                       step_outside_progress_fn progress, void *ctx, int *intact, dcp_error *err);

#endif
