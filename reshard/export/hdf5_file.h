/* An export as one plain HDF5 file. */
#pragma once

#include "export/contents.h"

/* Rank 0: one HDF5 file of all tensors in `dir`, without data, and the configuration as its
 * attribute `config`. Sets the items' offsets. An exit status, after a message. */
int export_hdf5_file_create(const dcp_checkpoint *ckpt, export_contents *contents, const char *dir);
/* Whether the file is one that export_hdf5_file_create may have made: HDF5 with its mark, or with
 * that attribute, as earlier versions have it. */
int export_hdf5_file_is_ours(const char *path);
