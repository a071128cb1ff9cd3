/* Datasets of a checkpoint's file through HDF5's MPI-IO driver, by independent transfers.
 *
 * Every rank opens the file by itself, on MPI_COMM_SELF: nothing in here is collective, so a rank
 * that fails leaves nobody waiting, and the file's metadata is never changed. */
#pragma once

#include "format/index.h"

typedef struct h5_file h5_file;

/* DCP_ERR_UNSUPPORTED where HDF5 was built without MPI-IO, or MPI is not running. */
int h5_parallel_check(dcp_error *err);

/* `path` is borrowed for messages. */
int h5_parallel_open(const char *path, int writing, h5_file **out, dcp_error *err);
/* NULL is ignored. Changes nothing in the file. A failure to write shows in h5_parallel_write. */
int h5_parallel_close(h5_file *file, dcp_error *err);

/* Opens the dataset of a row, which is borrowed, for the transfers that follow. DCP_ERR_CORRUPT:
 * HDF5 sees a dataset of another type, size or offset, one that is not contiguous or lies in
 * another file, or, in a file opened for reading, none. */
int h5_parallel_dataset(h5_file *file, const format_row *row, dcp_error *err);

/* Writes `box` of the tensor, which lies in the row's box, from dense memory. */
int h5_parallel_write(h5_file *file, const dcp_box *box, const void *data, dcp_error *err);
/* Reads `box`, which lies in the row's and in `held`, to its place in the dense memory of `held`.
 */
int h5_parallel_read(h5_file *file, const dcp_box *box, const dcp_box *held, void *memory,
                     dcp_error *err);
