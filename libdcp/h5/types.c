/* HDF5 types. The fields of bf16 are those of HDF5 2.0's H5T_FLOAT_BFLOAT16. */
#include "h5/types.h"

#include <string.h>

/* Makes an IEEE-like float of `bytes` bytes: sign at bit 8 * bytes - 1, then exponent, then
 * mantissa. */
static hid_t small_float(size_t bytes, size_t exponent_bits, size_t bias) {
    size_t bits = 8 * bytes, mantissa = bits - 1 - exponent_bits;
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type < 0) return type;
    if (H5Tset_fields(type, bits - 1, mantissa, exponent_bits, 0, mantissa) < 0 ||
        H5Tset_precision(type, bits) < 0 || H5Tset_size(type, bytes) < 0 ||
        H5Tset_ebias(type, bias) < 0) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

/* The type with which h5py writes and reads booleans. */
static hid_t boolean(void) {
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    signed char no = 0, yes = 1;
    if (type >= 0 &&
        (H5Tenum_insert(type, "FALSE", &no) < 0 || H5Tenum_insert(type, "TRUE", &yes) < 0)) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

/* The type with which h5py writes and reads complex numbers. */
static hid_t complex_of(hid_t part) {
    size_t bytes = H5Tget_size(part);
    hid_t type = H5Tcreate(H5T_COMPOUND, 2 * bytes);
    if (type >= 0 && (H5Tinsert(type, "r", 0, part) < 0 || H5Tinsert(type, "i", bytes, part) < 0)) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

hid_t h5_dtype(dcp_dtype dtype) {
    switch (dtype) {
    case DCP_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case DCP_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case DCP_F16:
        return small_float(2, 5, 15);
    case DCP_BF16:
        return small_float(2, 8, 127);
    case DCP_F8_E5M2:
        return small_float(1, 5, 15);
    case DCP_I64:
        return H5Tcopy(H5T_STD_I64LE);
    case DCP_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case DCP_I16:
        return H5Tcopy(H5T_STD_I16LE);
    case DCP_I8:
        return H5Tcopy(H5T_STD_I8LE);
    case DCP_U64:
        return H5Tcopy(H5T_STD_U64LE);
    case DCP_U32:
        return H5Tcopy(H5T_STD_U32LE);
    case DCP_U16:
        return H5Tcopy(H5T_STD_U16LE);
    case DCP_F8_E4M3: /* HDF5 would read 0x78 as infinity */
    case DCP_F8_E8M0: /* HDF5 has no float without sign and mantissa */
    case DCP_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case DCP_BOOL:
        return boolean();
    case DCP_C64:
        return complex_of(H5T_IEEE_F32LE);
    case DCP_C128:
        return complex_of(H5T_IEEE_F64LE);
    case DCP_DTYPE_NONE:
    case DCP_DTYPE_COUNT:
        break;
    }
    return -1;
}

const char *h5_dtype_attribute(dcp_dtype dtype) {
    return dtype == DCP_F8_E4M3 || dtype == DCP_F8_E8M0 ? dcp_dtype_name(dtype) : NULL;
}

hid_t h5_string_type(uint64_t bytes, H5T_str_t pad) {
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, bytes) < 0 || H5Tset_strpad(type, pad) < 0 ||
                      H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

int h5_attribute_write(hid_t object, const char *name, const char *text) {
    hid_t type = h5_string_type(strlen(text), H5T_STR_NULLPAD), space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    int status = attribute >= 0 && H5Awrite(attribute, type, text) >= 0 ? 0 : -1;
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return status;
}
