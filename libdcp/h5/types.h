/* The HDF5 types of libdcp's element types. Exports use the same types: dcp-export compiles this
 * file in. */
#pragma once

#include <hdf5.h>

#include "dcp/tensor.h"

/* Makes a type, which the caller closes with H5Tclose. Returns a negative value on failure. */
hid_t h5_dtype(dcp_dtype dtype);
/* Returns the name of a type that h5_dtype can't express (F8_E4M3 and F8_E8M0 are stored as u8),
 * for a `dtype` attribute; NULL for other types. */
const char *h5_dtype_attribute(dcp_dtype dtype);
/* Makes the type of UTF-8 strings that have `bytes` bytes and the padding `pad`. */
hid_t h5_string_type(uint64_t bytes, H5T_str_t pad);
/* Adds an attribute, a UTF-8 string of `text`'s length, to a dataset or file. Returns 0, or -1 on
 * failure. */
int h5_attribute_write(hid_t object, const char *name, const char *text);
