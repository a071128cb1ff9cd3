/* HDF5 types of our element types and tables. */
#ifndef DCP_H5_TYPES_H
#define DCP_H5_TYPES_H

#include <hdf5.h>

#include "step/index.h"

/* A new type, to be closed with H5Tclose; negative on failure. */
hid_t h5_dtype(dcp_dtype dtype);
/* What h5_dtype can't express (F8_E4M3 is stored as u8): the name for a `dtype` attribute, else
 * NULL. */
const char *h5_dtype_attribute(dcp_dtype dtype);
/* The compound type of the index's rows. */
hid_t h5_index_type(uint64_t path_bytes, dcp_layout layout);
/* A fixed-length UTF-8 string padded as `pad` says. */
hid_t h5_string_type(uint64_t bytes, H5T_str_t pad);

#endif
