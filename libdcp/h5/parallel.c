/* HDF5 1.10's mpio driver.
 *
 * Open MPI's own MPI-IO (ompio) reports success for writes that failed because the disk was full,
 * so ROMIO is required. When a process opens its first file, Open MPI reads from the environment
 * which of the two to use. So the variable OMPI_MCA_io is set just before that, unless it is
 * already set. The return code of every transfer is checked: H5Fflush and H5Fclose succeed even if
 * data was lost. */
#include "h5/parallel.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/box.h"
#include "core/fail.h"
#include "h5/hdf5_lock.h"
#include "h5/types.h"

#if defined H5_HAVE_PARALLEL && !defined DCP_COMM_ALONE_MPI_H
#define HAS_MPIO
#endif

#define CACHE_BYTES (4u << 20) /* for HDF5's metadata cache; otherwise it would grow to 32 MiB */

struct h5_file {
    hid_t file, dataset, type; /* -1: none */
    MPI_File scratch;          /* used for the close; MPI_FILE_NULL: opened for reading */
    const format_row *row;     /* the row of `dataset` */
    bool writing;
    const char *path;
};

int h5_parallel_check(dcp_error *err) {
    int running = 0, ended = 0;
#ifdef HAS_MPIO
    MPI_Initialized(&running);
    MPI_Finalized(&ended);
    if (running && !ended) return DCP_OK;
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "engine mpio: MPI is not running: start under mpirun, or let the program call "
                     "MPI_Init first, or use engine direct");
#else
    (void)running, (void)ended;
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "engine mpio: this libdcp was built without MPI-IO; use engine direct");
#endif
}

static herr_t use_mpio(hid_t fapl) {
#ifdef HAS_MPIO
#ifdef OPEN_MPI
    setenv("OMPI_MCA_io", "^ompio", 0);
#endif
    return H5Pset_fapl_mpio(fapl, MPI_COMM_SELF, MPI_INFO_NULL);
#else
    (void)fapl;
    return -1;
#endif
}

static herr_t bound_cache(hid_t fapl) {
    H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    if (H5Pget_mdc_config(fapl, &config) < 0) return -1;
    config.set_initial_size = true;
    config.initial_size = config.max_size = config.min_size = CACHE_BYTES;
    config.incr_mode = H5C_incr__off;
    config.flash_incr_mode = H5C_flash_incr__off;
    config.decr_mode = H5C_decr__off;
    return H5Pset_mdc_config(fapl, &config);
}

static int open_file(h5_file *f, dcp_error *err) {
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl >= 0 && use_mpio(fapl) >= 0 && bound_cache(fapl) >= 0)
        f->file = H5Fopen(f->path, f->writing ? H5F_ACC_RDWR : H5F_ACC_RDONLY, fapl);
    int status = f->file < 0 ? h5_fail(err, "open", f->path) : DCP_OK;
    H5Pclose(fapl);
    return status;
}

/* HDF5 1.10 rewrites the superblock whenever it closes a file that was opened for writing. If that
 * fails, an id keeps pointing to freed memory, and MPI_Finalize crashes. So the driver's MPI handle
 * is closed before H5Fclose, and replaced by the handle of a scratch file in memory. */
static int open_scratch(h5_file *f, dcp_error *err) {
    char path[64];
    int fd = memfd_create("dcp-mpio", MFD_CLOEXEC);
    if (fd < 0) return core_fail_errno(err, "make a scratch file in memory for", f->path);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int code = MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, MPI_INFO_NULL, &f->scratch);
    close(fd);
    if (code == MPI_SUCCESS) return DCP_OK;
    return core_fail(err, DCP_ERR_IO, "MPI-IO can't open a scratch file in memory");
}

static int close_through_scratch(h5_file *f, dcp_error *err) {
    MPI_File *handle; /* the driver's own variable */
    if (H5Fget_vfd_handle(f->file, H5P_DEFAULT, (void **)&handle) < 0) {
        MPI_File_close(&f->scratch);
        return h5_fail(err, "find the handle of", f->path);
    }
    MPI_File file = *handle;
    *handle = f->scratch;
    f->scratch = MPI_FILE_NULL;
    return MPI_File_close(&file) == MPI_SUCCESS
               ? DCP_OK
               : core_fail_path(core_fail(err, DCP_ERR_IO, "MPI-IO can't close %s", f->path),
                                f->path, err);
}

int h5_parallel_open(const char *path, bool writing, h5_file **out, dcp_error *err) {
    h5_section section;
    h5_file *f = calloc(1, sizeof *f);
    if (!f) return core_fail_memory(err, sizeof *f);
    *f = (h5_file){-1, -1, -1, MPI_FILE_NULL, NULL, writing, path};
    h5_enter(&section);
    int status = open_file(f, err);
    if (!status && writing) status = open_scratch(f, err);
    h5_leave(&section);
    if (status)
        h5_parallel_close(f, NULL);
    else
        *out = f;
    return status;
}

static void close_dataset(h5_file *f) {
    if (f->dataset >= 0) H5Dclose(f->dataset);
    if (f->type >= 0) H5Tclose(f->type);
    f->dataset = f->type = -1;
}

int h5_parallel_close(h5_file *f, dcp_error *err) {
    h5_section section;
    if (!f) return DCP_OK;
    h5_enter(&section);
    close_dataset(f);
    int status = f->scratch != MPI_FILE_NULL ? close_through_scratch(f, err) : DCP_OK;
    if (f->file >= 0 && H5Fclose(f->file) < 0 && !status) status = h5_fail(err, "close", f->path);
    h5_leave(&section);
    free(f);
    return status;
}

static herr_t follow_nowhere(const char *parent_file, const char *parent_group,
                             const char *child_file, const char *child_path, unsigned *flags,
                             hid_t fapl, void *ctx) {
    (void)parent_file, (void)parent_group, (void)child_file, (void)child_path;
    (void)flags, (void)fapl, (void)ctx;
    return -1;
}

/* Does not follow links into other files. */
static int open_dataset(h5_file *f, const char *path, const h5_section *section, dcp_error *err) {
    hid_t dapl = H5Pcreate(H5P_DATASET_ACCESS);
    if (dapl >= 0 && H5Pset_elink_cb(dapl, follow_nowhere, NULL) >= 0)
        f->dataset = H5Dopen2(f->file, path, dapl);
    int status = f->dataset < 0 ? h5_fail(err, "open dataset", path) : DCP_OK;
    H5Pclose(dapl);
    if (!status || f->writing || section->io_failed) return status;
    return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, f->path,
                                         "HDF5 metadata: dataset %s can't be opened", path),
                            path, err);
}

/* Returns true if the dataset is contiguous, lies in this file, and has the row's offset. */
static bool is_plain(hid_t dataset, uint64_t offset) {
    hid_t plist = H5Dget_create_plist(dataset);
    bool plain = plist >= 0 && H5Pget_layout(plist) == H5D_CONTIGUOUS &&
                 H5Pget_external_count(plist) == 0 && H5Pget_nfilters(plist) == 0 &&
                 H5Dget_offset(dataset) == offset;
    if (plist >= 0) H5Pclose(plist);
    return plain;
}

static bool has_type(hid_t dataset, hid_t wanted) {
    hid_t type = H5Dget_type(dataset);
    bool same = type >= 0 && wanted >= 0 && H5Tequal(type, wanted) > 0;
    if (type >= 0) H5Tclose(type);
    return same;
}

static bool has_shape(hid_t dataset, const format_row *row) {
    hsize_t dims[H5S_MAX_RANK];
    const dcp_box box = format_index_row_box(row);
    hid_t space = H5Dget_space(dataset);
    int n = space >= 0 ? H5Sget_simple_extent_dims(space, dims, NULL) : -1;
    bool same = n == (int)row->tensor.ndim &&
                H5Sget_simple_extent_type(space) == (n ? H5S_SIMPLE : H5S_SCALAR);
    for (int d = 0; d < n && same; d++) same = dims[d] == box.count[d];
    if (space >= 0) H5Sclose(space);
    return same;
}

static int select_dataset(h5_file *f, const format_row *row, const h5_section *section,
                          dcp_error *err) {
    close_dataset(f);
    f->row = row;
    int status = open_dataset(f, row->tensor.path, section, err);
    if (status) return status;
    f->type = h5_dtype(row->tensor.dtype);
    if (is_plain(f->dataset, row->offset) && has_type(f->dataset, f->type) &&
        has_shape(f->dataset, row))
        return DCP_OK;
    if (section->io_failed)
        return core_fail_tensor(core_fail_at(err, DCP_ERR_IO, f->path,
                                             "HDF5 can't read the metadata of dataset %s",
                                             row->tensor.path),
                                row->tensor.path, err);
    return core_fail_tensor(
        core_fail_at(err, DCP_ERR_CORRUPT, f->path,
                     "HDF5 metadata: dataset %s is not what the index says: its type, shape, "
                     "offset or layout differs",
                     row->tensor.path),
        row->tensor.path, err);
}

int h5_parallel_dataset(h5_file *f, const format_row *row, dcp_error *err) {
    h5_section section;
    if (f->dataset >= 0 && f->row == row) return DCP_OK;
    h5_enter(&section);
    int status = select_dataset(f, row, &section, err);
    if (status) close_dataset(f);
    h5_leave(&section);
    return status;
}

/* Selects `box` in an array that holds `within`; a scalar has nothing to select. */
static hid_t select_box(uint32_t ndim, const dcp_box *within, const dcp_box *box) {
    hsize_t dims[DCP_MAX_DIMS], start[DCP_MAX_DIMS], count[DCP_MAX_DIMS];
    if (!ndim) return H5Screate(H5S_SCALAR);
    for (uint32_t d = 0; d < ndim; d++) {
        dims[d] = within->count[d];
        start[d] = box->start[d] - within->start[d];
        count[d] = box->count[d];
    }
    hid_t space = H5Screate_simple((int)ndim, dims, NULL);
    if (space >= 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0) {
        H5Sclose(space);
        return -1;
    }
    return space;
}

typedef struct spaces {
    hid_t file, memory;
} spaces;

static spaces select_both(const h5_file *f, const dcp_box *held, const dcp_box *box) {
    uint32_t ndim = f->row->tensor.ndim;
    const dcp_box all = format_index_row_box(f->row);
    return (spaces){select_box(ndim, &all, box), select_box(ndim, held, box)};
}

static void spaces_close(spaces s) {
    if (s.file >= 0) H5Sclose(s.file);
    if (s.memory >= 0) H5Sclose(s.memory);
}

int h5_parallel_write(h5_file *f, const dcp_box *box, const void *data, dcp_error *err) {
    h5_section section;
    int status = DCP_OK;
    h5_enter(&section);
    spaces s = select_both(f, box, box);
    if (s.file < 0 || s.memory < 0 ||
        H5Dwrite(f->dataset, f->type, s.memory, s.file, H5P_DEFAULT, data) < 0)
        status = h5_fail(err, "write", f->path);
    spaces_close(s);
    h5_leave(&section);
    return status;
}

int h5_parallel_read(h5_file *f, const dcp_box *box, const dcp_box *held, void *memory,
                     dcp_error *err) {
    h5_section section;
    int status = DCP_OK;
    h5_enter(&section);
    spaces s = select_both(f, held, box);
    if (s.file < 0 || s.memory < 0 ||
        H5Dread(f->dataset, f->type, s.memory, s.file, H5P_DEFAULT, memory) < 0)
        status = h5_fail(err, "read", f->path);
    spaces_close(s);
    h5_leave(&section);
    return status;
}
