/* Choosing windows. A rank marks the windows that its fragments touch; those that nobody marked are
 * skipped by all. */
#include "copy/window.h"

#include <stdlib.h>

#include "core/fail.h"

static void mark(uint64_t *marks, uint64_t window_bytes, uint64_t start, uint64_t end) {
    if (start >= end) return;
    for (uint64_t w = start / window_bytes; w <= (end - 1) / window_bytes; w++) marks[w] = 1;
}

/* Short runs: one run a window is enough to mark it. */
static void mark_short(const piece *p, uint64_t *marks, uint64_t window_bytes) {
    for (uint64_t i = 0, a, b; i < p->copy.runs;) {
        box_copy_run(&p->copy, i, &a, &b);
        uint64_t start = p->file_offset + a, end = start + p->copy.run_bytes;
        mark(marks, window_bytes, start, end);
        uint64_t next = ((end - 1) / window_bytes + 1) * window_bytes;
        uint64_t after = box_copy_find(&p->copy, next - p->file_offset);
        i = after > i ? after : i + 1;
    }
}

static void mark_edges(const piece *p, uint64_t *marks, uint64_t window_bytes) {
    for (uint64_t i = 0, a, b, from, to; i < p->copy.runs; i++) {
        box_copy_run(&p->copy, i, &a, &b);
        piece_interior(p, i, &from, &to);
        mark(marks, window_bytes, p->file_offset + a, from);
        mark(marks, window_bytes, to, p->file_offset + a + p->copy.run_bytes);
    }
}

/* Windows inside what all ranks skip. */
static void unmark(const span_list *skip, uint64_t *marks, uint64_t window_bytes) {
    for (size_t i = 0; i < skip->n; i++)
        for (uint64_t w = (skip->list[i].from + window_bytes - 1) / window_bytes;
             (w + 1) * window_bytes <= skip->list[i].to; w++)
            marks[w] = 0;
}

static void choose_sizes(windows *w, int ranks) {
    uint64_t region = WINDOW_BYTES / (uint64_t)ranks / PAGE_BYTES * PAGE_BYTES;
    if (region > IO_SLOT_BYTES) region = IO_SLOT_BYTES;
    if (region < PAGE_BYTES) region = PAGE_BYTES;
    w->region_bytes = region;
    w->window_bytes = region * (uint64_t)ranks;
}

int windows_find(dcp_comm *comm, const piece *pieces, size_t n, uint64_t file_bytes, windows *out,
                 dcp_error *err) {
    windows w = {0};
    choose_sizes(&w, comm->size);
    uint64_t count = file_bytes / w.window_bytes + 1;
    w.list = calloc(count, sizeof *w.list);
    int status = comm_agree(comm, w.list ? DCP_OK : core_fail_memory(err, count * 8), err);
    if (status) goto free_list;
    for (size_t i = 0; i < n; i++)
        (pieces[i].direct ? mark_edges : mark_short)(&pieces[i], w.list, w.window_bytes);
    if (n && pieces[0].skip) unmark(pieces[0].skip, w.list, w.window_bytes);
    status = comm_allreduce(comm, w.list, count, DCP_REDUCE_MAX, err);
    if (status) goto free_list;
    for (uint64_t i = 0; i < count; i++)
        if (w.list[i]) w.list[w.n++] = i;
    *out = w;
    return DCP_OK;
free_list:
    windows_free(&w);
    return status;
}

void windows_free(windows *w) {
    free(w->list);
    *w = (windows){0};
}
