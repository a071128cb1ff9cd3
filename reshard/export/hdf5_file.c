/* One plain HDF5 file: each tensor is a contiguous dataset under its own name at the root, and the
 * root's attribute `config` is the model's configuration. HDF5 only lays out the file; ranks then
 * write the data to the positions that HDF5 chose. Another attribute marks the file as an export,
 * so that a later export may replace it. */
#include "export/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/element.h"
#include "export/stream.h"
#include "h5/memory.h"
#include "h5/types.h"
#include "programs/program.h"

#define CONFIG "config"
#define MARK "dcp-export"

/* Creates a dataset, and finds the position of its data. HDF5 allocates the space immediately,
 * without filling it, so that the data have a position. A tensor without bytes has no position. */
static int create_dataset(export_item *item, hid_t file, hid_t links, hid_t storage) {
    hsize_t dims[DCP_MAX_DIMS];
    const dcp_tensor *tensor = &item->tensor;
    for (uint32_t d = 0; d < tensor->ndim; d++) dims[d] = tensor->shape[d];
    hid_t type = h5_dtype(tensor->dtype);
    const char *attribute = h5_dtype_attribute(tensor->dtype);
    hid_t space =
        tensor->ndim ? H5Screate_simple((int)tensor->ndim, dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t dataset = H5Dcreate2(file, tensor->path, type, space, links, storage, H5P_DEFAULT);
    haddr_t at = dataset < 0 ? HADDR_UNDEF : H5Dget_offset(dataset);
    int status =
        dataset < 0 || (at == HADDR_UNDEF && dcp_tensor_bytes(tensor)) ? PROGRAM_FAILED : 0;
    item->offset = at == HADDR_UNDEF ? 0 : at;
    if (dataset >= 0 && attribute && h5_attribute_write(dataset, "dtype", attribute))
        status = PROGRAM_FAILED;
    if (dataset >= 0 && H5Dclose(dataset) < 0) status = PROGRAM_FAILED;
    H5Sclose(space);
    H5Tclose(type);
    return status;
}

/* Writes the configuration as an attribute; does nothing for a checkpoint without a
 * configuration. */
static int write_config(const dcp_checkpoint *ckpt, const export_contents *contents, hid_t file) {
    json_t *config = export_hf_folder_config(ckpt, contents);
    char *text = config ? json_text(config, JSON_SORT_KEYS) : NULL;
    if (!config) return 0;
    json_decref(config);
    if (!text) return PROGRAM_FAILED;
    int status = h5_attribute_write(file, CONFIG, text) ? PROGRAM_FAILED : 0;
    free(text);
    return status;
}

static int write_attributes(const dcp_checkpoint *ckpt, const export_contents *contents,
                            hid_t file) {
    if (h5_attribute_write(file, MARK, "1")) return PROGRAM_FAILED;
    return write_config(ckpt, contents, file);
}

/* Creates the datasets of all items. Stores no times, so the same weights give the same file, byte
 * for byte. */
static int create_datasets(export_contents *contents, hid_t file) {
    hid_t links = H5Pcreate(H5P_LINK_CREATE), storage = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_alloc_time(storage, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(storage, H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(storage, false);
    int status = 0;
    for (size_t i = 0; status == 0 && i < contents->n; i++)
        status = create_dataset(&contents->items[i], file, links, storage);
    H5Pclose(storage);
    H5Pclose(links);
    return status;
}

/* Opens the file without HDF5's lock, because some file systems have no locks. */
static hid_t open_unlocked(const char *path) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
    H5Pset_file_locking(access, false, true);
#endif
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return file;
}

/* Earlier versions wrote no mark; they wrote the configuration if there was one. */
bool export_hdf5_file_is_ours(const char *path) {
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = open_unlocked(path);
    if (file < 0) return false;
    bool ours = H5Aexists(file, MARK) > 0 || H5Aexists(file, CONFIG) > 0;
    H5Fclose(file);
    return ours;
}

/* Lays out the file. A failed write is not reported to HDF5, so that HDF5 can close the file; this
 * function reports the failure afterwards. If closing failed, HDF5 would try again when the program
 * ends, and the program would crash. */
static int write_layout(const dcp_checkpoint *ckpt, export_contents *contents, int fd,
                        const char *path) {
    int error = 0, status = PROGRAM_FAILED;
    hid_t driver = h5_memory_register(), access = H5Pcreate(H5P_FILE_ACCESS), file = -1;
    if (h5_memory_use(access, driver, fd, &error) >= 0)
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    if (file >= 0) status = write_attributes(ckpt, contents, file);
    if (status == 0) status = create_datasets(contents, file);
    if (file >= 0 && H5Fclose(file) < 0) status = PROGRAM_FAILED;
    H5Pclose(access);
    H5FDunregister(driver);
    if (error) {
        errno = error;
        return program_fail_errno("cannot write", path);
    }
    return status ? program_fail(status, "cannot write %s: HDF5 failed", path) : 0;
}

int export_hdf5_file_create(const dcp_checkpoint *ckpt, export_contents *contents,
                            const char *dir) {
    char path[PATH_MAX + 80];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, contents->files[0].name);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return program_fail_errno("cannot create", path);
    int status = write_layout(ckpt, contents, fd, path);
    if (status == 0 && fstat(fd, &st)) status = program_fail_errno("cannot stat", path);
    if (close(fd) && status == 0) status = program_fail_errno("cannot write", path);
    return status ? status : export_stream_create_file(path, "", 0, (uint64_t)st.st_size);
}
