/* HDF5 types. The fields of bf16 are those of HDF5 2.0's H5T_FLOAT_BFLOAT16. */
#include "h5/types.h"

/* An IEEE-like float of `bytes` bytes: sign at bit 8 * bytes - 1, then exponent, then mantissa. */
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

/* As h5py writes and reads booleans. */
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
    case DCP_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case DCP_BOOL:
        return boolean();
    case DCP_DTYPE_COUNT:
        break;
    }
    return -1;
}

const char *h5_dtype_attribute(dcp_dtype dtype) {
    return dtype == DCP_F8_E4M3 ? dcp_dtype_name(dtype) : NULL;
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

hid_t h5_index_type(uint64_t path_bytes, dcp_layout layout) {
    hsize_t dims = DCP_MAX_DIMS;
    hid_t path = h5_string_type(path_bytes, H5T_STR_NULLPAD);
    hid_t dtype = h5_string_type(8, H5T_STR_NULLPAD);
    hid_t array = H5Tarray_create2(H5T_STD_U64LE, 1, &dims);
    hid_t row = H5Tcreate(H5T_COMPOUND, step_index_row_bytes(path_bytes, layout));
    size_t p = path_bytes;
    int bad = row < 0 || H5Tinsert(row, "path", 0, path) < 0 ||
              H5Tinsert(row, "dtype", p, dtype) < 0 ||
              H5Tinsert(row, "ndim", p + 8, H5T_STD_U32LE) < 0 ||
              H5Tinsert(row, "shape", p + 12, array) < 0 ||
              H5Tinsert(row, "offset", p + 76, H5T_STD_U64LE) < 0 ||
              H5Tinsert(row, "bytes", p + 84, H5T_STD_U64LE) < 0 ||
              H5Tinsert(row, "crc64", p + 92, H5T_STD_U64LE) < 0;
    if (!bad && layout == DCP_LAYOUT_SHARDED)
        bad = H5Tinsert(row, "start", p + 100, array) < 0 ||
              H5Tinsert(row, "count", p + 164, array) < 0;
    H5Tclose(path);
    H5Tclose(dtype);
    H5Tclose(array);
    if (!bad) return row;
    if (row >= 0) H5Tclose(row);
    return -1;
}
