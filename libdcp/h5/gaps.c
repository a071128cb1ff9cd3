/* Keeps what is not zero between the datasets of a laid-out file, in rows of pages. */
#include "h5/gaps.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fail.h"

static int by_offset(const void *a, const void *b) {
    const step_range *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int is_zero(const unsigned char *p, size_t n) {
    return !n || (!p[0] && !memcmp(p, p + 1, n - 1));
}

static int add_run(skeleton *s, size_t *capacity, uint64_t offset, uint64_t bytes,
                   const unsigned char *data) {
    if (s->n_runs == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 16;
        void *runs = realloc(s->runs, more * sizeof *s->runs);
        if (!runs) return 0;
        s->runs = runs;
        *capacity = more;
    }
    unsigned char *copy = malloc(bytes);
    if (!copy) return 0;
    memcpy(copy, data, bytes);
    s->runs[s->n_runs++] = (skeleton_run){offset, bytes, copy};
    return 1;
}

/* Bytes from `at` to the end of its page or of the gap. */
static uint64_t page_rest(uint64_t at, uint64_t end) {
    uint64_t next = (at / PAGE_BYTES + 1) * PAGE_BYTES;
    return (next < end ? next : end) - at;
}

/* Cuts the gap's bytes, which begin at `start` in the file, into rows of pages that are not zero.
 */
static int keep_pages(skeleton *s, size_t *capacity, uint64_t start, const unsigned char *data,
                      uint64_t bytes) {
    uint64_t end = start + bytes;
    for (uint64_t at = start; at < end;) {
        uint64_t first = at;
        while (at < end && !is_zero(data + (at - start), page_rest(at, end)))
            at += page_rest(at, end);
        if (at > first && !add_run(s, capacity, first, at - first, data + (first - start)))
            return 0;
        if (at < end) at += page_rest(at, end);
    }
    return 1;
}

/* Keeps the bytes [start, end) of the memory file, where they are not zero. */
static int keep_gap(int fd, uint64_t start, uint64_t end, skeleton *s, size_t *capacity,
                    dcp_error *err) {
    if (start >= end) return DCP_OK;
    unsigned char *data = malloc(end - start);
    if (!data) return core_fail_memory(err, end - start);
    int status = DCP_OK;
    ssize_t got = pread(fd, data, end - start, (off_t)start); /* less at the memory file's end */
    if (got < 0)
        status = core_fail_errno(err, "read the layout of", "the file");
    else if (!keep_pages(s, capacity, start, data, (uint64_t)got))
        status = core_fail_memory(err, (uint64_t)got);
    free(data);
    return status;
}

int h5_gaps_collect(int fd, const step_row *rows, size_t n, skeleton *s, dcp_error *err) {
    step_range *taken = malloc((n + 3) * sizeof *taken);
    if (!taken) return core_fail_memory(err, (n + 3) * sizeof *taken);
    size_t used = 0, capacity = 0;
    for (size_t i = 0; i < n; i++)
        if (rows[i].bytes) taken[used++] = (step_range){rows[i].offset, rows[i].bytes, 0};
    taken[used++] = s->index;
    taken[used++] = s->blocks;
    taken[used++] = s->meta;
    qsort(taken, used, sizeof *taken, by_offset);
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
