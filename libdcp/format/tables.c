/* Reading the tables of one file with plain reads, before HDF5 or anything else opens it. Nothing
 * is used before its checksum has been checked; until then the file's size limits all sizes. */
#include "format/tables.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "io/descriptors.h"

enum {
    HEAD_BYTES = 8 + USERBLOCK_BYTES, /* the file's size precedes the user block */
    TABLE_STEP = 4 << 20,             /* a larger table is read in parts */
};

format_file format_file_of(char *path) {
    return (format_file){.path = path, .folder = AT_FDCWD, .file.fd = -1, .plain.fd = -1};
}

static int open_with_userblock(int folder, const char *path, int *fd, uint64_t *bytes,
                               dcp_error *err) {
    int status = io_open_regular_in(folder, path, O_RDONLY, fd, bytes, err);
    if (status || *bytes >= USERBLOCK_BYTES) return status;
    return core_fail_at(err, DCP_ERR_CORRUPT, path, "size: %llu bytes are less than a user block",
                        (unsigned long long)*bytes);
}

int format_tables_read_userblock(const char *path, format_userblock *ub, dcp_error *err) {
    unsigned char head[USERBLOCK_BYTES];
    uint64_t bytes;
    int fd = -1, status = open_with_userblock(AT_FDCWD, path, &fd, &bytes, err);
    if (!status) status = io_read_plain(fd, head, sizeof head, 0, path, err);
    if (!status) status = format_userblock_decode(head, bytes, path, ub, err);
    if (fd >= 0) close(fd);
    return status;
}

/* Bytes that are being collected. `all` grows by the number of bytes read, not by what the file
 * claims. */
typedef struct packing {
    const char *path;
    int fd;
    unsigned char *all;
    uint64_t bytes;
} packing;

static int append_bytes(packing *p, uint64_t offset, uint64_t bytes, dcp_error *err) {
    unsigned char *grown = realloc(p->all, p->bytes + bytes + 1);
    if (!grown) return core_fail_memory(err, p->bytes + bytes);
    p->all = grown;
    int status = io_read_plain(p->fd, grown + p->bytes, bytes, offset, p->path, err);
    p->bytes += bytes;
    return status;
}

/* A large index is read in parts, each part only after the rows before it have been found valid. So
 * a false number of rows costs little memory: the zeros of a sparse file are not valid rows. */
static int append_index(packing *p, const format_userblock *ub, dcp_error *err) {
    int status = DCP_OK;
    uint64_t step = ub->row_bytes ? TABLE_STEP / ub->row_bytes + 1 : 1;
    for (uint64_t i = 0; i < ub->rows && !status; i += step) {
        uint64_t n = ub->rows - i < step ? ub->rows - i : step;
        status = append_bytes(p, ub->index.offset + i * ub->row_bytes, n * ub->row_bytes, err);
        if (!status && step < ub->rows)
            status = format_index_check_rows(p->all + HEAD_BYTES, i, i + n, ub, p->path, err);
    }
    return status;
}

/* Returns true if a whole page of the table is zeros. A page of checksums of real data is never all
 * zeros, but a hole in a sparse file is. */
static bool has_hole(const unsigned char *table, uint64_t bytes) {
    for (uint64_t at = 0; at + PAGE_BYTES <= bytes; at += PAGE_BYTES)
        if (!table[at] && !memcmp(table + at, table + at + 1, PAGE_BYTES - 1)) return true;
    return false;
}

/* The blocks table is read in parts, too: if a sparse file claims to be huge, reading stops at the
 * first hole in its table. */
static int append_blocks(packing *p, const format_range *blocks, dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t at = 0, n; at < blocks->bytes && !status; at += n) {
        n = blocks->bytes - at < TABLE_STEP ? blocks->bytes - at : TABLE_STEP;
        status = append_bytes(p, blocks->offset + at, n, err);
        if (!status && has_hole(p->all + p->bytes - n, n))
            status = core_fail_at(err, DCP_ERR_CORRUPT, p->path,
                                  "blocks: checksums are missing (zeros in their place): the file "
                                  "was not written whole, or not by this library");
    }
    return status;
}

static int pack_file(packing *p, uint64_t file_bytes, dcp_error *err) {
    format_userblock ub;
    p->all = malloc(HEAD_BYTES);
    if (!p->all) return core_fail_memory(err, HEAD_BYTES);
    core_put_u64(p->all, file_bytes);
    p->bytes = 8;
    int status = append_bytes(p, 0, USERBLOCK_BYTES, err);
    if (!status) status = format_userblock_decode(p->all + 8, file_bytes, p->path, &ub, err);
    if (!status) status = format_index_check_rows(NULL, 0, 0, &ub, p->path, err);
    if (!status) status = append_index(p, &ub, err);
    if (!status) status = append_blocks(p, &ub.blocks, err);
    if (!status) status = append_bytes(p, ub.meta.offset, ub.meta.bytes, err);
    return status;
}

int format_tables_pack(const format_file *file, unsigned char **packed, uint64_t *bytes,
                       dcp_error *err) {
    packing p = {.path = file->path, .fd = -1};
    uint64_t file_bytes = 0;
    int status = open_with_userblock(file->folder, file->path, &p.fd, &file_bytes, err);
    if (!status) status = pack_file(&p, file_bytes, err);
    if (p.fd >= 0) close(p.fd);
    if (status) {
        free(p.all);
    } else {
        *packed = p.all;
        *bytes = p.bytes;
    }
    return status;
}

static int check_table(const char *path, const char *name, const unsigned char *data,
                       const format_range *range, dcp_error *err) {
    if (core_crc64(data, range->bytes) == range->crc) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, path, "%s: its checksum is wrong", name);
}

static int keep_meta(format_file *file, const unsigned char *data, dcp_error *err) {
    uint64_t bytes = file->ub.meta.bytes;
    while (bytes && data[bytes - 1] == ' ') bytes--;
    if (memchr(data, 0, bytes))
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path, "meta: it contains a NUL");
    file->meta = malloc(bytes + 1);
    if (!file->meta) return core_fail_memory(err, bytes + 1);
    memcpy(file->meta, data, bytes);
    file->meta[bytes] = 0;
    return DCP_OK;
}

static int keep_crcs(format_file *file, const unsigned char *data, dcp_error *err) {
    uint64_t n = file->ub.blocks.bytes / 8;
    file->crcs = core_array(n + 1, sizeof *file->crcs);
    if (!file->crcs) return core_fail_memory(err, n * 8);
    for (uint64_t b = 0; b < n; b++) file->crcs[b] = core_get_u64(data + 8 * b);
    return DCP_OK;
}

int format_tables_unpack(format_file *file, const unsigned char *packed, uint64_t bytes,
                         bool checked, dcp_error *err) {
    int status =
        format_userblock_decode(packed + 8, core_get_u64(packed), file->path, &file->ub, err);
    if (status) return status;
    const format_userblock *ub = &file->ub;
    if (bytes != HEAD_BYTES + ub->index.bytes + ub->blocks.bytes + ub->meta.bytes)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                            "user block: it changed while it was read");
    const unsigned char *index = packed + HEAD_BYTES, *blocks = index + ub->index.bytes,
                        *meta = blocks + ub->blocks.bytes;
    status = check_table(file->path, "index", index, &ub->index, err);
    if (!status) status = check_table(file->path, "blocks", blocks, &ub->blocks, err);
    if (!status) status = check_table(file->path, "meta", meta, &ub->meta, err);
    if (!status) status = format_index_decode(index, ub, file->path, checked, &file->rows, err);
    if (!status) status = keep_crcs(file, blocks, err);
    if (!status) status = keep_meta(file, meta, err);
    format_tables_prepare(file);
    return status;
}

int format_tables_read(format_file *file, dcp_error *err) {
    unsigned char *packed;
    uint64_t bytes;
    int status = format_tables_pack(file, &packed, &bytes, err);
    if (status) return status;
    status = format_tables_unpack(file, packed, bytes, false, err);
    free(packed);
    return status;
}

void format_tables_prepare(format_file *file) {
    if (file->file.is_on_use) return;
    io_fd_prepare(&file->file, file->folder, file->path, IO_READ);
    io_fd_prepare(&file->plain, file->folder, file->path, IO_READ_BUFFERED);
}

void format_tables_free_rows(format_file *file) {
    free(file->rows);
    free(file->crcs);
    file->rows = NULL;
    file->crcs = NULL;
}

void format_tables_free(format_file *file) {
    io_fd_close(&file->file);
    io_fd_close(&file->plain);
    format_tables_free_rows(file);
    free(file->path);
    free(file->meta);
    free(file->block_places);
}

static int check_visible(const format_file *file, dcp_error *err) {
    if (!file->hidden) return DCP_OK;
    return core_fail_path(
        core_fail(err, DCP_ERR_UNSUPPORTED,
                  "%s can be read on rank %d but not on this rank: load its tensors with dcp_load",
                  file->path, file->reader),
        file->path, err);
}

int format_file_read(format_file *file, void *to, uint64_t bytes, uint64_t offset, dcp_error *err) {
    int status = check_visible(file, err);
    if (!status) status = io_fd_acquire(&file->plain, err);
    if (status) return status;
    status = io_read_plain(file->plain.fd, to, bytes, offset, file->path, err);
    io_fd_release(&file->plain);
    return status;
}

void format_file_will_read(format_file *file, uint64_t offset, uint64_t bytes) {
    if (file->hidden || io_fd_acquire(&file->plain, NULL)) return;
    posix_fadvise(file->plain.fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
    io_fd_release(&file->plain);
}

/* Continues the raw checksum with bytes [start, end) of the file. */
static int sum_gap(format_file *file, unsigned char *buffer, uint64_t start, uint64_t end,
                   uint64_t *raw, dcp_error *err) {
    for (uint64_t part; start < end; start += part) {
        part = end - start < BLOCK_BYTES ? end - start : BLOCK_BYTES;
        int status = format_file_read(file, buffer, part, start, err);
        if (status) return status;
        *raw = core_crc64_raw(*raw, buffer, part);
    }
    return DCP_OK;
}

/* Computes the checksum of everything after the user block that is not in a dataset. `rows` is
 * sorted by offset. */
static int sum_outside(format_file *file, const format_row **rows, size_t n, uint64_t *crc,
                       dcp_error *err) {
    uint64_t at = USERBLOCK_BYTES, outside = file->ub.file_bytes - USERBLOCK_BYTES, raw = 0;
    unsigned char *buffer = malloc(BLOCK_BYTES);
    int status = buffer ? DCP_OK : core_fail_memory(err, BLOCK_BYTES);
    for (size_t i = 0; i < n && !status; i++) {
        status = sum_gap(file, buffer, at, rows[i]->offset, &raw, err);
        at = rows[i]->offset + rows[i]->bytes;
        outside -= rows[i]->bytes;
    }
    if (!status) status = sum_gap(file, buffer, at, file->ub.file_bytes, &raw, err);
    free(buffer);
    *crc = core_crc64_finish(raw, outside);
    return status;
}

int format_file_check_outside(format_file *file, dcp_error *err) {
    const format_row **rows = NULL;
    size_t n = 0;
    uint64_t crc = 0;
    if (file->outside_is_intact) return DCP_OK;
    format_file again = format_file_of(file->path); /* for the rows, which `file` may lack */
    again.folder = file->folder;
    int status = file->rows ? DCP_OK : format_tables_read(&again, err);
    if (!status)
        status =
            format_index_sort(file->rows ? file->rows : again.rows, file->ub.rows, &rows, &n, err);
    if (!status) status = sum_outside(file, rows, n, &crc, err);
    free(rows);
    again.path = NULL;
    format_tables_free(&again);
    if (status) return status;
    file->outside_is_intact = crc == file->ub.outside_crc;
    if (file->outside_is_intact) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                        "HDF5 metadata or padding: bytes outside the tensors and tables are "
                        "damaged");
}
