/* An HDF5 file driver over an open file, such as a sparse anonymous memory file. Exports are also
 * laid out with it: dcp-export compiles this file in. */
#pragma once

#include <hdf5.h>

/* Registers the driver; close it with H5FDunregister. Returns a negative value on failure. */
hid_t h5_memory_register(void);

/* Makes `fapl` use the driver on the open file `fd`, which the caller still owns. If a write fails,
 * *error becomes its errno, while HDF5 considers the write done. *error must live as long as the
 * file. */
herr_t h5_memory_use(hid_t fapl, hid_t driver, int fd, int *error);
