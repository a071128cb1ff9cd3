/* Forged files: a real file whose numbers are changed and whose checksums are then corrected, so
 * that later checks must find the change. */
#ifndef TESTS_FORGE_H
#define TESTS_FORGE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "format/index.h"

/* Byte offsets in the user block, see docs/format.md. */
enum {
    UB_VERSION = 8,
    UB_LAYOUT = 12,
    UB_FILE = 16,
    UB_ROWS = 24,
    UB_ROW = 32,
    UB_INDEX = 40,
    UB_BLOCKS = 64,
    UB_META = 88,
    UB_OUTSIDE = 112,
};

/* Columns of a row of the index, from the end of its path. */
enum {
    DTYPE = 0,
    NDIM = 8,
    SHAPE = 12,
    OFFSET = 76,
    BYTES = 84,
    CRC = 92,
    START = 100,
    COUNT = 164
};

typedef struct forge {
    char path[512];
    unsigned char *real, *bytes; /* as written; as forged */
    size_t n;
    int fd;
} forge;

static inline int forge_open(forge *f, const char *step, const char *name) {
    snprintf(f->path, sizeof f->path, "%s/%s", step, name);
    f->fd = open(f->path, O_RDWR);
    off_t end = f->fd < 0 ? -1 : lseek(f->fd, 0, SEEK_END);
    if (end < 0 || !(f->real = malloc((size_t)end)) || !(f->bytes = malloc((size_t)end))) return -1;
    f->n = (size_t)end;
    if (pread(f->fd, f->real, f->n, 0) != (ssize_t)f->n) return -1;
    memcpy(f->bytes, f->real, f->n);
    return 0;
}

static inline void forge_close(forge *f) {
    close(f->fd);
    free(f->real);
    free(f->bytes);
}

/* In the file as it was written: a table's position, a row of the index, a column of the row. */
static inline uint64_t forge_at(const forge *f, int table) { return core_get_u64(f->real + table); }
static inline uint64_t forge_length(const forge *f, int table) {
    return core_get_u64(f->real + table + 8);
}
static inline uint64_t forge_row_at(const forge *f, uint64_t row) {
    return forge_at(f, UB_INDEX) + row * core_get_u64(f->real + UB_ROW);
}
static inline uint64_t forge_path_bytes(const forge *f) {
    return core_get_u64(f->real + UB_ROW) - (core_get_u32(f->real + UB_LAYOUT) ? 228 : 100);
}
static inline uint64_t forge_column_at(const forge *f, uint64_t row, int column) {
    return (uint64_t)((int64_t)(forge_row_at(f, row) + forge_path_bytes(f)) + column);
}
static inline uint64_t forge_column(const forge *f, uint64_t row, int column) {
    return core_get_u64(f->real + forge_column_at(f, row, column));
}

static inline int forge_by_offset(const void *a, const void *b) {
    const format_range *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The checksum of what is outside of the datasets of the (real) index. */
static inline uint64_t forge_outside(const forge *f) {
    uint64_t rows = core_get_u64(f->real + UB_ROWS), at = USERBLOCK_BYTES, raw = 0, sum = 0;
    format_range *data = calloc(rows + 1, sizeof *data);
    for (uint64_t i = 0; i < rows; i++)
        data[i] = (format_range){forge_column(f, i, OFFSET), forge_column(f, i, BYTES), 0};
    data[rows] = (format_range){f->n, 0, 0};
    qsort(data, rows, sizeof *data, forge_by_offset);
    for (uint64_t i = 0; i <= rows; i++) {
        if (data[i].offset < at) continue; /* without bytes */
        raw = core_crc64_raw(raw, f->bytes + at, data[i].offset - at);
        sum += data[i].offset - at;
        at = data[i].offset + data[i].bytes;
    }
    free(data);
    return core_crc64_finish(raw, sum);
}

/* Corrects the checksums of tables that, according to the forged user block, are still in the
 * file. */
static inline void forge_seal(forge *f) {
    static const int tables[] = {UB_INDEX, UB_BLOCKS, UB_META};
    for (int t = 0; t < 3; t++) {
        unsigned char *range = f->bytes + tables[t];
        uint64_t at = core_get_u64(range), bytes = core_get_u64(range + 8);
        if (at <= f->n && bytes <= f->n - at)
            core_put_u64(range + 16, core_crc64(f->bytes + at, bytes));
    }
    core_put_u64(f->bytes + UB_OUTSIDE, forge_outside(f));
    core_put_u64(f->bytes + USERBLOCK_BYTES - 8, core_crc64(f->bytes, USERBLOCK_BYTES - 8));
}

/* Writes pages of `to` that differ from those of `from`. */
static inline int forge_write(const forge *f, const unsigned char *from, const unsigned char *to) {
    for (size_t at = 0; at < f->n; at += PAGE_BYTES)
        if (memcmp(from + at, to + at, PAGE_BYTES) &&
            pwrite(f->fd, to + at, PAGE_BYTES, (off_t)at) != PAGE_BYTES)
            return -1;
    return 0;
}

/* forge_put puts the forged file in place; forge_restore restores the real one. */
static inline int forge_put(forge *f) {
    forge_seal(f);
    return forge_write(f, f->real, f->bytes);
}
static inline int forge_restore(forge *f) {
    if (ftruncate(f->fd, (off_t)f->n) || forge_write(f, f->bytes, f->real)) return -1;
    memcpy(f->bytes, f->real, f->n);
    return 0;
}

#endif
