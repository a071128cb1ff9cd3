/* Reads and writes datasets of a checkpoint's file through HDF5's MPI-IO driver, by independent
 * transfers.
 *
 * Every rank opens the file for itself, on MPI_COMM_SELF. Nothing here is collective, so if a rank
 * fails, no other rank waits for it. The file's metadata never changes. */
#pragma once

#include <stdbool.h>

#include "format/index.h"

typedef struct h5_file h5_file;

/* Returns DCP_ERR_UNSUPPORTED if HDF5 was built without MPI-IO, or MPI is not running. */
int h5_parallel_check(dcp_error *err);

/* `path` is borrowed for messages. */
int h5_parallel_open(const char *path, bool writing, h5_file **out, dcp_error *err);
/* Changes nothing in the file. NULL is ignored. Failed writes are reported by h5_parallel_write. */
int h5_parallel_close(h5_file *file, dcp_error *err);

/* Opens the dataset of a row for the following transfers; `row` is borrowed. Returns
 * DCP_ERR_CORRUPT if the dataset in the file has another type, shape or offset than the row, is not
 * contiguous, or lies in another file. If the file was opened for reading, a dataset that cannot be
 * opened is DCP_ERR_CORRUPT, too. */
int h5_parallel_dataset(h5_file *file, const format_row *row, dcp_error *err);

/* Writes `box` of the tensor, which lies in the row's box, from dense memory. */
int h5_parallel_write(h5_file *file, const dcp_box *box, const void *data, dcp_error *err);
/* Reads `box`, which lies in the row's box and in `held`, to its place in the dense memory of
 * `held`. */
int h5_parallel_read(h5_file *file, const dcp_box *box, const dcp_box *held, void *memory,
                     dcp_error *err);
