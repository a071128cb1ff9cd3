/* HDF5 types of our element types. Exports have the same: dcp-export compiles this file in. */
#pragma once

#include <hdf5.h>

#include "dcp/tensor.h"

/* A new type, to be closed with H5Tclose; negative on failure. */
hid_t h5_dtype(dcp_dtype dtype);
/* For a type that h5_dtype can't express (F8_E4M3 and F8_E8M0 are stored as u8): its name, for a
 * `dtype` attribute. Else NULL. */
const char *h5_dtype_attribute(dcp_dtype dtype);
/* A fixed-length UTF-8 string padded as `pad` says. */
hid_t h5_string_type(uint64_t bytes, H5T_str_t pad);
/* Adds an attribute, a UTF-8 string of `text`'s length, to a dataset or file. 0, or -1 on failure.
 */
int h5_attribute_write(hid_t object, const char *name, const char *text);
