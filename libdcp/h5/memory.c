/* HDF5's own drivers open files by name and resolve symbolic links, so they cannot open a memory
 * file, not even through /proc. This driver receives a descriptor. Datasets that are allocated and
 * never written use no memory, and no file system is needed.
 *
 * Writes may fail, since limits on file size apply to memory files, too. A failed write is
 * reported through *error, not to HDF5. Otherwise HDF5 would close the file a second time at the
 * end of the program, when the driver no longer exists. */
#include "h5/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/system.h"

typedef struct memory_file {
    H5FD_t public; /* must be first */
    int fd;
    int *error;
    haddr_t eoa;
} memory_file;

typedef struct memory_info {
    int fd;
    int *error;
} memory_info;

static H5FD_t *memory_open(const char *name, unsigned flags, hid_t fapl, haddr_t max_address) {
    (void)name, (void)flags, (void)max_address;
    const memory_info *info = H5Pget_driver_info(fapl);
    memory_file *file = info ? calloc(1, sizeof *file) : NULL;
    if (!file) return NULL;
    file->fd = info->fd;
    file->error = info->error;
    return &file->public;
}

static herr_t memory_close(H5FD_t *file) {
    free(file);
    return 0;
}

static haddr_t memory_get_eoa(const H5FD_t *file, H5FD_mem_t type) {
    (void)type;
    return ((const memory_file *)file)->eoa;
}

static herr_t memory_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t address) {
    (void)type;
    ((memory_file *)file)->eoa = address;
    return 0;
}

static haddr_t memory_get_eof(const H5FD_t *file, H5FD_mem_t type) {
    (void)type;
    struct stat st;
    if (fstat(((const memory_file *)file)->fd, &st)) return HADDR_UNDEF;
    return (haddr_t)st.st_size;
}

static herr_t memory_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t bytes,
                          void *buffer) {
    (void)type, (void)dxpl;
    char *to = buffer;
    while (bytes) {
        ssize_t got = pread(((memory_file *)file)->fd, to, bytes, (off_t)address);
        if (got < 0) return -1;
        if (!got) break;
        to += got;
        address += (haddr_t)got;
        bytes -= (size_t)got;
    }
    while (bytes) to[--bytes] = 0; /* beyond the end */
    return 0;
}

static herr_t memory_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t bytes,
                           const void *buffer) {
    (void)type, (void)dxpl;
    const char *from = buffer;
    const int refused = core_file_limit_check(address + bytes);
    while (bytes) {
        ssize_t put = refused ? -1 : pwrite(((memory_file *)file)->fd, from, bytes, (off_t)address);
        if (put < 0) {
            *((memory_file *)file)->error = errno;
            return 0;
        }
        from += put;
        address += (haddr_t)put;
        bytes -= (size_t)put;
    }
    return 0;
}

static herr_t memory_truncate(H5FD_t *file, hid_t dxpl, hbool_t closing) {
    (void)dxpl, (void)closing;
    memory_file *f = (memory_file *)file;
    if (core_file_limit_check(f->eoa) || ftruncate(f->fd, (off_t)f->eoa)) *f->error = errno;
    return 0;
}

static herr_t memory_query(const H5FD_t *file, unsigned long *flags) {
    (void)file;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static const H5FD_class_t memory_class = {
#if H5_VERSION_GE(1, 14, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)300, /* in the range for drivers of applications */
#endif
    .name = "libdcp-memory",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(memory_info),
    .open = memory_open,
    .close = memory_close,
    .query = memory_query,
    .get_eoa = memory_get_eoa,
    .set_eoa = memory_set_eoa,
    .get_eof = memory_get_eof,
    .read = memory_read,
    .write = memory_write,
    .truncate = memory_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

hid_t h5_memory_register(void) { return H5FDregister(&memory_class); }

herr_t h5_memory_use(hid_t fapl, hid_t driver, int fd, int *error) {
    memory_info info = {fd, error};
    return H5Pset_driver(fapl, driver, &info);
}
