/* Calling HDF5: by one thread at a time, and what it says of a failure. */
#ifndef DCP_H5_HDF5_H
#define DCP_H5_HDF5_H

#include <hdf5.h>

#include "dcp/error.h"

/* Our turn at HDF5, which as packaged is not thread-safe, whatever objects its callers have. Its
 * own printing of errors is off meanwhile. */
typedef struct h5_turn {
    H5E_auto2_t print;
    void *print_data;
} h5_turn;

void h5_enter(h5_turn *turn);
void h5_leave(const h5_turn *turn);

/* "HDF5 can't <what> <path>: <why>", right after the call that failed, in the same turn.
 * DCP_ERR_NO_SPACE where that is why, else DCP_ERR_IO. */
int h5_fail(dcp_error *err, const char *what, const char *path);

#endif
