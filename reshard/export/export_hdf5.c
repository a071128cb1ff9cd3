/* One plain HDF5 file: a contiguous dataset a tensor, under the tensor's name, at the root, whose
 * attribute `config` is the model's configuration. HDF5 only lays it out; ranks then write the data
 * to the places that it gave. */
#include <hdf5.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/json_text.h"
#include "export/export.h"
#include "programs/program.h"

/* An IEEE-like float of `bytes` bytes: the sign on top, then exponent, then mantissa. */
static hid_t make_float(size_t bytes, size_t exponent_bits, size_t bias) {
    size_t mantissa_bits = 8 * bytes - 1 - exponent_bits;
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 8 * bytes - 1, mantissa_bits, exponent_bits, 0, mantissa_bits);
    H5Tset_size(type, bytes);
    H5Tset_ebias(type, bias);
    return type;
}

/* As h5py has it. */
static hid_t make_boolean(void) {
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    H5Tenum_insert(type, "FALSE", &(signed char){0});
    H5Tenum_insert(type, "TRUE", &(signed char){1});
    return type;
}

static hid_t make_type(dcp_dtype dtype) {
    switch (dtype) {
    case DCP_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case DCP_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case DCP_F16:
        return make_float(2, 5, 15);
    case DCP_BF16:
        return make_float(2, 8, 127);
    case DCP_F8_E5M2:
        return make_float(1, 5, 15);
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
    case DCP_BOOL:
        return make_boolean();
    default:
        return H5Tcopy(H5T_STD_U8LE);
    }
}

/* Allocated at once and never filled, so that it has a place; a tensor without bytes needs none. */
static int create_dataset(export_item *item, hid_t file, hid_t links, hid_t storage) {
    hsize_t dims[DCP_MAX_DIMS];
    const dcp_tensor *tensor = &item->tensor;
    for (uint32_t d = 0; d < tensor->ndim; d++) dims[d] = tensor->shape[d];
    hid_t type = make_type(tensor->dtype);
    hid_t space =
        tensor->ndim ? H5Screate_simple((int)tensor->ndim, dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t dataset = H5Dcreate2(file, tensor->path, type, space, links, storage, H5P_DEFAULT);
    haddr_t at = dataset < 0 ? HADDR_UNDEF : H5Dget_offset(dataset);
    int status =
        dataset < 0 || (at == HADDR_UNDEF && dcp_tensor_bytes(tensor)) ? PROGRAM_FAILED : 0;
    item->offset = at == HADDR_UNDEF ? 0 : at;
    if (dataset >= 0 && H5Dclose(dataset) < 0) status = PROGRAM_FAILED;
    H5Sclose(space);
    H5Tclose(type);
    return status;
}

/* As a string of fixed length; where the checkpoint has none, there is no attribute. */
static int write_config(const dcp_checkpoint *ckpt, const export_plan *plan, hid_t file) {
    json_t *config = export_config_make(ckpt, plan);
    char *text = config ? json_text(config, JSON_SORT_KEYS) : NULL;
    if (!config) return 0;
    json_decref(config);
    if (!text) return PROGRAM_FAILED;
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(text));
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t attribute = H5Acreate2(file, "config", type, space, H5P_DEFAULT, H5P_DEFAULT);
    int status = attribute >= 0 && H5Awrite(attribute, type, text) >= 0 ? 0 : PROGRAM_FAILED;
    if (attribute >= 0) H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    free(text);
    return status;
}

static int create_datasets(export_plan *plan, hid_t file) {
    hid_t links = H5Pcreate(H5P_LINK_CREATE), storage = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_alloc_time(storage, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(storage, H5D_FILL_TIME_NEVER);
    int status = 0;
    for (size_t i = 0; status == 0 && i < plan->n; i++)
        status = create_dataset(&plan->items[i], file, links, storage);
    H5Pclose(storage);
    H5Pclose(links);
    return status;
}

int export_hdf5_is_ours(const char *path) {
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) return 0;
    int ours = H5Aexists(file, "config") > 0;
    H5Fclose(file);
    return ours;
}

int export_hdf5(const dcp_checkpoint *ckpt, export_plan *plan, const char *dir) {
    char path[PATH_MAX + 80];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, plan->files[0].name);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0) return program_fail_errno("cannot create", path);
    int status = write_config(ckpt, plan, file);
    if (status == 0) status = create_datasets(plan, file);
    if (H5Fclose(file) < 0 && status == 0) status = PROGRAM_FAILED;
    if (status) return program_fail(status, "cannot write %s: is the disk full?", path);
    if (stat(path, &st)) return program_fail_errno("cannot stat", path);
    return export_reserve(path, "", 0, (uint64_t)st.st_size);
}
