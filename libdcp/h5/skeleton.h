/* Computes a file's HDF5 metadata and the places of its datasets without accessing the file. HDF5
 * lays out the datasets in an anonymous sparse memory file, and the bytes outside the datasets are
 * copied from there. */
#pragma once

#include <stddef.h>

#include "format/index.h"

/* Bytes that are not zero and belong to no dataset. */
typedef struct h5_run {
    uint64_t offset, bytes;
    const unsigned char *data;
} h5_run;

typedef struct h5_skeleton {
    uint64_t file_bytes;              /* a multiple of PAGE_BYTES */
    format_range index, blocks, meta; /* without crc; each on its own pages */
    h5_run *runs;                     /* ascending */
    size_t n_runs;
} h5_skeleton;

/* Called every few rows, outside a critical section (h5/hdf5_lock.h): a result other than DCP_OK
 * ends the work. */
typedef struct h5_poll {
    int (*fn)(void *ctx, dcp_error *err);
    void *ctx;
} h5_poll;

/* Lays out one dataset per row (its shape is the row's box) and the three tables; sets each row's
 * offset. Rows must be sorted by path. meta_bytes is the length of /dcp/meta. `poll` may be NULL.
 * Equal arguments give equal results. */
int h5_skeleton_build(format_row *rows, size_t n, dcp_layout layout, uint64_t meta_bytes,
                      const h5_poll *poll, h5_skeleton *out, dcp_error *err);
void h5_skeleton_free(h5_skeleton *s);

/* Computes the CRC-64 of all bytes of the file that are neither user block nor tensor data, in file
 * order: the skeleton's runs, and index, blocks and meta, whose bytes are tables[0] to [2]. */
int h5_skeleton_outside_crc(const h5_skeleton *s, const format_row *rows, size_t n,
                            const unsigned char *const *tables, uint64_t *crc, dcp_error *err);
