/* Calls HDF5 from one thread at a time, and finds out why a call failed. */
#pragma once

#include <hdf5.h>

#include "dcp/error.h"

/* A critical section: code in which only this thread calls HDF5. HDF5 as packaged is not
 * thread-safe, not even for separate files. During a critical section HDF5 does not print errors.
 */
typedef struct h5_section {
    H5E_auto2_t print;
    void *print_data;
    int io_failed; /* a call failed because MPI-IO failed, which says nothing about the file */
} h5_section;

void h5_enter(h5_section *section);
void h5_leave(const h5_section *section);

/* Fails with "HDF5 can't <what> <path>: <why>". Must be called directly after the call that failed,
 * in the same critical section. Returns DCP_ERR_NO_SPACE if the file system is full, otherwise
 * DCP_ERR_IO. */
int h5_fail(dcp_error *err, const char *what, const char *path);
