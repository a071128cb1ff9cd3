/* An HDF5 file driver over an open file, such as a sparse anonymous memory file. Exports are laid
 * out with it too: dcp-export compiles this file in. */
#pragma once

#include <hdf5.h>

/* Registers the driver; close it with H5FDunregister. Negative on failure. */
hid_t h5_memory_register(void);

/* Makes `fapl` use the driver on the open file `fd`, which stays the caller's. A write that fails
 * sets *error to its errno, and HDF5 takes it for done. *error must live as long as the file. */
herr_t h5_memory_use(hid_t fapl, hid_t driver, int fd, int *error);
