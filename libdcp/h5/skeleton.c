/* Builds a file's HDF5 metadata in memory.
 *
 * Equal arguments give equal bytes: object times are off, and the format bounds are HDF5's default.
 * Datasets of a page or more start at page boundaries. The tables are added after the file has
 * been closed and reopened, with page alignment for everything. So no page contains both a table
 * and tensor data, and tables can be written after the tensors. */
#include "h5/skeleton.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "h5/hdf5_lock.h"
#include "h5/memory.h"
#include "h5/types.h"

#define ROWS_PER_POLL 64

typedef struct layout_builder {
    hid_t driver;      /* registered until the file is closed, since the close calls it */
    hid_t file, group; /* group: of the most recent dataset */
    hid_t gcpl, dcpl;
    char parent[DCP_MAX_PATH + 16]; /* the group's path */
    int error;                      /* errno of the memory file */
} layout_builder;

/* Sets a metadata cache of a fixed size, without a minimum of clean entries. The names of a group
 * are a single entry of the cache. If that entry nearly fills the cache, HDF5 searches the whole
 * cache for each new dataset. */
static bool set_cache(hid_t fapl, size_t bytes) {
    H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    if (H5Pget_mdc_config(fapl, &config) < 0) return false;
    config.set_initial_size = true;
    config.initial_size = config.min_size = config.max_size = bytes;
    config.min_clean_fraction = 0;
    config.incr_mode = H5C_incr__off;
    config.flash_incr_mode = H5C_flash_incr__off;
    config.decr_mode = H5C_decr__off;
    return H5Pset_mdc_config(fapl, &config) >= 0;
}

/* Returns twice the size of the names of all datasets, which may be in one group. HDF5 accepts at
 * most 128 MiB. */
static size_t cache_guess(const format_row *rows, size_t n) {
    size_t bytes = 2u << 20, most = 128u << 20;
    for (size_t i = 0; i < n && bytes < most; i++)
        bytes += 2 * (strlen(strrchr(rows[i].tensor.path, '/')) + 8);
    return bytes < most ? bytes : most;
}

/* How HDF5 lays out the file, and the size of its metadata cache. */
typedef struct scratch {
    hsize_t threshold; /* objects of at least this size start at page boundaries */
    hsize_t meta_block;
    size_t cache;
} scratch;

static hid_t open_scratch(layout_builder *b, int fd, bool create, const scratch *how) {
    const char *name = "libdcp-layout"; /* ignored: the driver uses the descriptor */
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE), file = -1;
    if (b->driver >= 0 && h5_memory_use(fapl, b->driver, fd, &b->error) >= 0 &&
        H5Pset_userblock(fcpl, USERBLOCK_BYTES) >= 0 &&
        H5Pset_alignment(fapl, how->threshold, PAGE_BYTES) >= 0 &&
        H5Pset_meta_block_size(fapl, how->meta_block) >= 0 && set_cache(fapl, how->cache))
        file =
            create ? H5Fcreate(name, H5F_ACC_TRUNC, fcpl, fapl) : H5Fopen(name, H5F_ACC_RDWR, fapl);
    H5Pclose(fapl);
    H5Pclose(fcpl);
    return file;
}

static int builder_open(layout_builder *b, int fd, bool create, const scratch *how,
                        dcp_error *err) {
    *b = (layout_builder){.driver = h5_memory_register(), .group = -1};
    b->file = open_scratch(b, fd, create, how);
    b->gcpl = H5Pcreate(H5P_GROUP_CREATE);
    b->dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (b->file < 0 || H5Pset_obj_track_times(b->gcpl, false) < 0 ||
        H5Pset_obj_track_times(b->dcpl, false) < 0 || H5Pset_layout(b->dcpl, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(b->dcpl, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(b->dcpl, H5D_FILL_TIME_NEVER) < 0)
        return h5_fail(err, "lay out", "the file");
    return DCP_OK;
}

/* Fails according to errno, but without a path, since the caller does not know of the memory
 * file. */
static int fail_in_memory(dcp_error *err, const char *what, const char *name) {
    return core_fail_path(core_fail_errno(err, what, name), "", err);
}

/* Closing writes the metadata to the memory file, so a failure here is a failure to build. */
static int builder_close(layout_builder *b, dcp_error *err) {
    if (b->group >= 0) H5Gclose(b->group);
    H5Pclose(b->gcpl);
    H5Pclose(b->dcpl);
    int status = DCP_OK;
    if (b->file >= 0 && H5Fclose(b->file) < 0) status = h5_fail(err, "close", "the layout");
    if (b->driver >= 0) H5FDunregister(b->driver);
    if (status || !b->error) return status;
    errno = b->error;
    return fail_in_memory(err, "write the layout to", "a memory file");
}

static int make_groups(layout_builder *b, const char *parent, dcp_error *err) {
    char path[DCP_MAX_PATH + 16];
    size_t length = strlen(parent);
    for (size_t i = 1; i <= length; i++) {
        if (parent[i] != '/' && parent[i]) continue;
        memcpy(path, parent, i);
        path[i] = 0;
        htri_t exists = H5Lexists(b->file, path, H5P_DEFAULT);
        if (exists > 0) continue;
        hid_t group = H5Gcreate2(b->file, path, H5P_DEFAULT, b->gcpl, H5P_DEFAULT);
        if (group < 0) return h5_fail(err, "create group", path);
        H5Gclose(group);
    }
    return DCP_OK;
}

/* Makes b->group the folder of `path`; *name becomes the rest of the path. */
static int enter_group(layout_builder *b, const char *path, const char **name, dcp_error *err) {
    size_t length = (size_t)(strrchr(path, '/') - path);
    *name = path + length + 1;
    if (b->group >= 0 && strlen(b->parent) == length && !memcmp(b->parent, path, length))
        return DCP_OK;
    memcpy(b->parent, path, length);
    b->parent[length] = 0;
    int status = make_groups(b, b->parent, err);
    if (status) return status;
    if (b->group >= 0) H5Gclose(b->group);
    b->group = H5Gopen2(b->file, b->parent, H5P_DEFAULT);
    return b->group < 0 ? h5_fail(err, "open group", b->parent) : DCP_OK;
}

/* Creates a dataset. *offset becomes the offset of its bytes; 0 if it has none. */
static int make_dataset(layout_builder *b, const char *path, hid_t type, uint32_t ndim,
                        const uint64_t *dims, const char *attribute, uint64_t *offset,
                        dcp_error *err) {
    const char *name;
    int status = enter_group(b, path, &name, err);
    if (status) return status;
    hsize_t size[DCP_MAX_DIMS];
    for (uint32_t d = 0; d < ndim; d++) size[d] = dims[d];
    hid_t space = ndim ? H5Screate_simple((int)ndim, size, NULL) : H5Screate(H5S_SCALAR);
    hid_t dataset = H5Dcreate2(b->group, name, type, space, H5P_DEFAULT, b->dcpl, H5P_DEFAULT);
    /* before HDF5 forgets the reason */
    if (dataset < 0) status = h5_fail(err, "create dataset", path);
    if (space >= 0) H5Sclose(space);
    if (status) return status;
    haddr_t at = H5Dget_offset(dataset);
    *offset = at == HADDR_UNDEF ? 0 : at;
    if (attribute && h5_attribute_write(dataset, "dtype", attribute))
        status = h5_fail(err, "annotate", path);
    H5Dclose(dataset);
    return status;
}

static int make_row(layout_builder *b, format_row *row, dcp_error *err) {
    hid_t type = h5_dtype(row->tensor.dtype);
    if (type < 0) return h5_fail(err, "make the type of", row->tensor.path);
    const dcp_box box = format_index_row_box(row);
    int status = make_dataset(b, row->tensor.path, type, row->tensor.ndim, box.count,
                              h5_dtype_attribute(row->tensor.dtype), &row->offset, err);
    H5Tclose(type);
    if (!row->bytes) row->offset = 0;
    return status;
}

/* Makes the compound type of the index's rows. */
static hid_t make_index_type(uint64_t path_bytes, dcp_layout layout) {
    hsize_t dims = DCP_MAX_DIMS;
    hid_t path = h5_string_type(path_bytes, H5T_STR_NULLPAD);
    hid_t dtype = h5_string_type(8, H5T_STR_NULLPAD);
    hid_t array = H5Tarray_create2(H5T_STD_U64LE, 1, &dims);
    hid_t row = H5Tcreate(H5T_COMPOUND, format_index_row_bytes(path_bytes, layout));
    size_t p = path_bytes;
    bool bad = row < 0 || H5Tinsert(row, "path", 0, path) < 0 ||
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

static int make_tables(layout_builder *b, const format_row *rows, size_t n, dcp_layout layout,
                       uint64_t meta_bytes, h5_skeleton *s, dcp_error *err) {
    uint64_t path_bytes = format_index_path_bytes(rows, n), blocks = 0, count = n;
    for (size_t i = 0; i < n; i++) blocks += format_index_blocks(rows[i].bytes);
    s->index.bytes = n * format_index_row_bytes(path_bytes, layout);
    s->blocks.bytes = 8 * blocks;
    s->meta.bytes = meta_bytes;
    hid_t row = make_index_type(path_bytes, layout);
    hid_t text = h5_string_type(meta_bytes, H5T_STR_SPACEPAD);
    int status = row < 0 || text < 0 ? h5_fail(err, "make the types of", "/dcp") : DCP_OK;
    if (!status)
        status = make_dataset(b, "/dcp/index", row, 1, &count, NULL, &s->index.offset, err);
    if (!status)
        status =
            make_dataset(b, "/dcp/blocks", H5T_STD_U64LE, 1, &blocks, NULL, &s->blocks.offset, err);
    if (!status) status = make_dataset(b, "/dcp/meta", text, 0, NULL, NULL, &s->meta.offset, err);
    if (row >= 0) H5Tclose(row);
    if (text >= 0) H5Tclose(text);
    return status;
}

/* Estimates how much room the metadata of all datasets require, so that HDF5 puts them in one piece
 * near the beginning of the file. For each dataset HDF5 uses some 400 bytes, plus its name. If the
 * guess is wrong, the metadata are spread over the file, which does no other harm. */
static hsize_t metadata_guess(const format_row *rows, size_t n) {
    hsize_t bytes = 16384;
    for (size_t i = 0; i < n; i++) bytes += 512 + strlen(rows[i].tensor.path);
    return core_round_to_pages(bytes);
}

/* The critical section ends before the call and begins again after it: the caller's function may
 * call the library, which would wait for the end of the critical section. */
static int poll_outside(h5_section *section, const h5_poll *poll, dcp_error *err) {
    h5_leave(section);
    const int status = poll->fn(poll->ctx, err);
    h5_enter(section);
    return status;
}

static int make_rows(layout_builder *b, format_row *rows, size_t n, h5_section *section,
                     const h5_poll *poll, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) {
        if (poll && i % ROWS_PER_POLL == 0) status = poll_outside(section, poll, err);
        if (!status) status = make_row(b, &rows[i], err);
    }
    return status;
}

static int lay_out_file(int fd, format_row *rows, size_t n, dcp_layout layout, uint64_t meta_bytes,
                        h5_section *section, const h5_poll *poll, h5_skeleton *s, dcp_error *err) {
    layout_builder b;
    scratch how = {PAGE_BYTES, metadata_guess(rows, n), cache_guess(rows, n)};
    int status = builder_open(&b, fd, true, &how, err);
    if (!status) status = make_rows(&b, rows, n, section, poll, err);
    int closed = builder_close(&b, status ? NULL : err);
    if (status || closed) return status ? status : closed;
    how.threshold = 1;
    how.meta_block = PAGE_BYTES;
    status = builder_open(&b, fd, false, &how, err);
    if (!status) status = make_tables(&b, rows, n, layout, meta_bytes, s, err);
    closed = builder_close(&b, status ? NULL : err);
    return status ? status : closed;
}

static int file_size(int fd, h5_skeleton *s, dcp_error *err) {
    struct stat st;
    if (fstat(fd, &st)) return fail_in_memory(err, "stat", "the layout");
    uint64_t end = (uint64_t)st.st_size;
    const format_range *tables[] = {&s->index, &s->blocks, &s->meta};
    for (int t = 0; t < 3; t++)
        if (tables[t]->offset + tables[t]->bytes > end) end = tables[t]->offset + tables[t]->bytes;
    s->file_bytes = core_round_to_pages(end);
    if (s->file_bytes > MAX_FILE_BYTES)
        return core_fail(err, DCP_ERR_ARG,
                         "a file would have %llu bytes, but at most %llu are possible",
                         (unsigned long long)s->file_bytes, MAX_FILE_BYTES);
    return DCP_OK;
}

static int order_ranges(const void *a, const void *b) {
    const format_range *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static bool is_zero(const unsigned char *p, size_t n) {
    return !n || (!p[0] && !memcmp(p, p + 1, n - 1));
}

static bool add_gap_run(h5_skeleton *s, size_t *capacity, uint64_t offset, uint64_t bytes,
                        const unsigned char *data) {
    if (s->n_runs == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 16;
        void *runs = core_array_grow(s->runs, more, sizeof *s->runs);
        if (!runs) return false;
        s->runs = runs;
        *capacity = more;
    }
    unsigned char *copy = malloc(bytes);
    if (!copy) return false;
    memcpy(copy, data, bytes);
    s->runs[s->n_runs++] = (h5_run){offset, bytes, copy};
    return true;
}

/* A gap is a range of the memory file that belongs to no user block, dataset or table. */

/* Returns the number of bytes from `at` to the end of its page, or to the end of the gap if that
 * comes first. */
static uint64_t page_rest(uint64_t at, uint64_t end) {
    uint64_t next = (at / PAGE_BYTES + 1) * PAGE_BYTES;
    return (next < end ? next : end) - at;
}

/* Cuts the gap's bytes, which begin at `start` in the file, into runs of pages that are not
 * zero. */
static bool keep_pages(h5_skeleton *s, size_t *capacity, uint64_t start, const unsigned char *data,
                       uint64_t bytes) {
    uint64_t end = start + bytes;
    for (uint64_t at = start; at < end;) {
        uint64_t first = at;
        while (at < end && !is_zero(data + (at - start), page_rest(at, end)))
            at += page_rest(at, end);
        if (at > first && !add_gap_run(s, capacity, first, at - first, data + (first - start)))
            return false;
        if (at < end) at += page_rest(at, end);
    }
    return true;
}

/* Adds the bytes [start, end) of the memory file to s->runs, except for pages of zeros. */
static int keep_gap(int fd, uint64_t start, uint64_t end, h5_skeleton *s, size_t *capacity,
                    dcp_error *err) {
    if (start >= end) return DCP_OK;
    unsigned char *data = malloc(end - start);
    if (!data) return core_fail_memory(err, end - start);
    int status = DCP_OK;
    ssize_t got = pread(fd, data, end - start, (off_t)start); /* fewer at the end of the file */
    if (got < 0)
        status = fail_in_memory(err, "read the layout of", "the file");
    else if (!keep_pages(s, capacity, start, data, (uint64_t)got))
        status = core_fail_memory(err, (uint64_t)got);
    free(data);
    return status;
}

/* Fills s->runs with the bytes of the memory file that are in no user block, dataset or table, in
 * runs of pages that are not zero. Runs that were added before a failure are freed with s. */
static int collect_gaps(int fd, const format_row *rows, size_t n, h5_skeleton *s, dcp_error *err) {
    format_range *taken = core_array(n + 3, sizeof *taken);
    if (!taken) return core_fail_memory(err, (n + 3) * sizeof *taken);
    size_t used = 0, capacity = 0;
    for (size_t i = 0; i < n; i++)
        if (rows[i].bytes) taken[used++] = (format_range){rows[i].offset, rows[i].bytes, 0};
    taken[used++] = s->index;
    taken[used++] = s->blocks;
    taken[used++] = s->meta;
    qsort(taken, used, sizeof *taken, order_ranges);
    uint64_t at = USERBLOCK_BYTES;
    int status = DCP_OK;
    for (size_t i = 0; i < used && !status; i++) {
        status = keep_gap(fd, at, taken[i].offset, s, &capacity, err);
        if (taken[i].offset + taken[i].bytes > at) at = taken[i].offset + taken[i].bytes;
    }
    if (!status) status = keep_gap(fd, at, s->file_bytes, s, &capacity, err);
    free(taken);
    return status;
}

/* Checks before HDF5 does, as HDF5's own message would not name the problem. */
static int refuse_too_large(const format_row *rows, size_t n, dcp_error *err) {
    uint64_t left = MAX_FILE_BYTES;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].bytes > left) {
            const int status = core_fail(
                err, DCP_ERR_ARG, "tensor %s has %llu bytes, but a file can have at most %llu",
                rows[i].tensor.path, (unsigned long long)rows[i].bytes, MAX_FILE_BYTES);
            return core_fail_tensor(status, rows[i].tensor.path, err);
        }
        left -= rows[i].bytes;
    }
    return DCP_OK;
}

int h5_skeleton_build(format_row *rows, size_t n, dcp_layout layout, uint64_t meta_bytes,
                      const h5_poll *poll, h5_skeleton *out, dcp_error *err) {
    h5_skeleton s = {0};
    if (n > MAX_ROWS)
        return core_fail(err, DCP_ERR_ARG, "%zu tensors are too many: a file can hold at most %u",
                         n, MAX_ROWS);
    int status = refuse_too_large(rows, n, err);
    if (status) return status;
    int fd = memfd_create("libdcp-layout", MFD_CLOEXEC);
    if (fd < 0) return fail_in_memory(err, "make a memory file for", "the layout");
    h5_section section;
    h5_enter(&section);
    status = lay_out_file(fd, rows, n, layout, meta_bytes, &section, poll, &s, err);
    h5_leave(&section);
    if (!status) status = file_size(fd, &s, err);
    if (!status) status = collect_gaps(fd, rows, n, &s, err);
    close(fd);
    if (status)
        h5_skeleton_free(&s);
    else
        *out = s;
    return status;
}

void h5_skeleton_free(h5_skeleton *s) {
    for (size_t i = 0; i < s->n_runs; i++) free((void *)s->runs[i].data);
    free(s->runs);
    *s = (h5_skeleton){0};
}

typedef struct segment {
    uint64_t offset, bytes;
    const unsigned char *data;
} segment;

static int order_segments(const void *a, const void *b) {
    const segment *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Returns how many bytes of datasets precede `offset` in the file; *at advances along the sorted
 * list. */
static uint64_t data_before(const segment *data, size_t n, size_t *at, uint64_t *sum,
                            uint64_t offset) {
    while (*at < n && data[*at].offset < offset) *sum += data[(*at)++].bytes;
    return *sum;
}

/* Computes the checksum of all bytes outside user block and tensor data, in file order; `known`
 * contains those that are not zero. */
static uint64_t outside_crc(const segment *known, size_t n_known, const segment *data,
                            size_t n_data, uint64_t file_bytes) {
    uint64_t raw = 0, position = 0, sum = 0; /* position: how many outside bytes are done */
    size_t at = 0;
    for (size_t i = 0; i < n_known; i++) {
        uint64_t start = known[i].offset - USERBLOCK_BYTES -
                         data_before(data, n_data, &at, &sum, known[i].offset);
        raw =
            core_crc64_raw(core_crc64_shift(raw, start - position), known[i].data, known[i].bytes);
        position = start + known[i].bytes;
    }
    uint64_t end = file_bytes - USERBLOCK_BYTES - data_before(data, n_data, &at, &sum, file_bytes);
    return core_crc64_finish(core_crc64_shift(raw, end - position), end);
}

int h5_skeleton_outside_crc(const h5_skeleton *s, const format_row *rows, size_t n,
                            const unsigned char *const *tables, uint64_t *crc, dcp_error *err) {
    size_t n_known = 0, n_data = 0, room = s->n_runs + 3 + n;
    const format_range *ranges[] = {&s->index, &s->blocks, &s->meta};
    segment *known = core_array(room, sizeof *known);
    if (!known) return core_fail_memory(err, room * sizeof *known);
    segment *data = known + s->n_runs + 3;
    for (size_t i = 0; i < s->n_runs; i++)
        known[n_known++] = (segment){s->runs[i].offset, s->runs[i].bytes, s->runs[i].data};
    for (int t = 0; t < 3; t++) /* an empty table has no offset */
        if (ranges[t]->bytes)
            known[n_known++] = (segment){ranges[t]->offset, ranges[t]->bytes, tables[t]};
    for (size_t i = 0; i < n; i++)
        if (rows[i].bytes) data[n_data++] = (segment){rows[i].offset, rows[i].bytes, NULL};
    qsort(known, n_known, sizeof *known, order_segments);
    qsort(data, n_data, sizeof *data, order_segments);
    *crc = outside_crc(known, n_known, data, n_data, s->file_bytes);
    free(known);
    return DCP_OK;
}
