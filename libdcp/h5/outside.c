/* The checksum of what a writer puts around its datasets, without the file. */
#include <stdlib.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "h5/skeleton.h"

typedef struct segment {
    uint64_t offset, bytes;
    const unsigned char *data;
} segment;

static int by_offset(const void *a, const void *b) {
    const segment *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Bytes of datasets in the file before `offset`; *at moves along the ascending list. */
static uint64_t data_before(const segment *data, size_t n, size_t *at, uint64_t *sum,
                            uint64_t offset) {
    while (*at < n && data[*at].offset < offset) *sum += data[(*at)++].bytes;
    return *sum;
}

/* The checksum of all bytes outside user block and tensor data, in file order: `known` are those
 * that are not zero. */
static uint64_t outside_crc(const segment *known, size_t n_known, const segment *data,
                            size_t n_data, uint64_t file_bytes) {
    uint64_t raw = 0, position = 0, sum = 0; /* position: bytes outside seen so far */
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

int h5_skeleton_outside_crc(const skeleton *s, const step_row *rows, size_t n,
                            const unsigned char *const *tables, uint64_t *crc, dcp_error *err) {
    size_t n_known = 0, n_data = 0, room = s->n_runs + 3 + n;
    const step_range *ranges[] = {&s->index, &s->blocks, &s->meta};
    segment *known = malloc(room * sizeof *known), *data = known + s->n_runs + 3;
    if (!known) return core_fail_memory(err, room * sizeof *known);
    for (size_t i = 0; i < s->n_runs; i++)
        known[n_known++] = (segment){s->runs[i].offset, s->runs[i].bytes, s->runs[i].data};
    for (int t = 0; t < 3; t++) /* an empty table has no offset */
        if (ranges[t]->bytes)
            known[n_known++] = (segment){ranges[t]->offset, ranges[t]->bytes, tables[t]};
    for (size_t i = 0; i < n; i++)
        if (rows[i].bytes) data[n_data++] = (segment){rows[i].offset, rows[i].bytes, NULL};
    qsort(known, n_known, sizeof *known, by_offset);
    qsort(data, n_data, sizeof *data, by_offset);
    *crc = outside_crc(known, n_known, data, n_data, s->file_bytes);
    free(known);
    return DCP_OK;
}
