/* Whether this library wrote a file. */
#ifndef DCP_LOAD_ORIGIN_H
#define DCP_LOAD_ORIGIN_H

#include "step/tables.h"

/* *ours: 1 where the user block's checksum of what is outside of tensor data is that of a file
 * that this library, with its HDF5, writes for these rows, checksums and meta. */
int origin_check(const step_file *file, int *ours, dcp_error *err);

#endif
