/* What is neither user block nor tensor data: HDF5's metadata, the tables, padding. */
#include "step/outside.h"

#include <stdlib.h>

#include "core/crc64.h"
#include "core/fail.h"

typedef struct gap_sum {
    const step_file *file;
    unsigned char *buffer;
    step_outside_progress_fn progress;
    void *ctx;
    uint64_t raw; /* checksum of what was read */
} gap_sum;

static int by_file_offset(const void *a, const void *b) {
    const index_row *x = *(const index_row *const *)a, *y = *(const index_row *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Goes on with bytes [start, end) of the file. */
static int sum_gap(gap_sum *w, uint64_t start, uint64_t end, dcp_error *err) {
    for (uint64_t part; start < end; start += part) {
        part = end - start < BLOCK_BYTES ? end - start : BLOCK_BYTES;
        int status = io_read_plain(w->file->plain, w->buffer, part, start, w->file->path, err);
        if (status) return status;
        w->raw = core_crc64_raw(w->raw, w->buffer, part);
        if (w->progress) w->progress(w->ctx, part);
    }
    return DCP_OK;
}

int step_outside_check(const step_file *file, unsigned char *buffer,
                       step_outside_progress_fn progress, void *ctx, int *intact, dcp_error *err) {
    size_t n = file->ub.rows;
    const index_row **rows = malloc((n + 1) * sizeof *rows);
    if (!rows) return core_fail_memory(err, n * sizeof *rows);
    for (size_t i = 0; i < n; i++) rows[i] = &file->rows[i];
    qsort(rows, n, sizeof *rows, by_file_offset);
    gap_sum w = {file, buffer, progress, ctx, 0};
    uint64_t at = USERBLOCK_BYTES, outside = file->ub.file_bytes - USERBLOCK_BYTES;
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) {
        if (!rows[i]->bytes) continue;
        status = sum_gap(&w, at, rows[i]->offset, err);
        at = rows[i]->offset + rows[i]->bytes;
        outside -= rows[i]->bytes;
    }
    if (!status) status = sum_gap(&w, at, file->ub.file_bytes, err);
    free(rows);
    *intact = !status && core_crc64_finish(w.raw, outside) == file->ub.outside_crc;
    return status;
}
