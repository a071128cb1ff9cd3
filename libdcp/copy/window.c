/* Choosing windows. A rank marks the windows that its fragments touch; those that nobody marked are
 * skipped by all. */
#include "copy/window.h"

#include <stdlib.h>

#include "core/fail.h"

/* Windows from one address on, `unit` bytes apart. */
typedef struct marking {
    uint64_t *marks, origin, unit;
} marking;

static void mark(const marking *m, uint64_t start, uint64_t end) {
    if (start >= end) return;
    uint64_t last = (end - 1 - m->origin) / m->unit;
    for (uint64_t w = (start - m->origin) / m->unit; w <= last; w++) m->marks[w] = 1;
}

/* Short runs: one run a window is enough to mark it. */
static void mark_short(const piece *p, const marking *m) {
    for (uint64_t i = 0, a, b; i < p->copy->runs;) {
        core_box_copy_run(p->copy, i, &a, &b);
        uint64_t start = p->file_offset + a, end = start + p->copy->run_bytes;
        mark(m, start, end);
        uint64_t next = m->origin + ((end - 1 - m->origin) / m->unit + 1) * m->unit;
        uint64_t after = core_box_copy_find(p->copy, next - p->file_offset);
        i = after > i ? after : i + 1;
    }
}

static void mark_edges(const piece *p, const marking *m) {
    for (uint64_t i = 0, a, b, from, to; i < p->copy->runs; i++) {
        core_box_copy_run(p->copy, i, &a, &b);
        piece_interior(p, i, &from, &to);
        mark(m, p->file_offset + a, from);
        mark(m, to, p->file_offset + a + p->copy->run_bytes);
    }
}

/* Windows inside what all ranks skip. */
static void unmark(const span_list *skip, uint64_t *marks, uint64_t window_bytes) {
    for (size_t i = 0; i < skip->n; i++)
        for (uint64_t w = (skip->list[i].from + window_bytes - 1) / window_bytes;
             (w + 1) * window_bytes <= skip->list[i].to; w++)
            marks[w] = 0;
}

/* Where the lane of the address begins. */
static uint64_t lane_start(const uint64_t *lanes, int ranks, uint64_t address) {
    size_t low = 0, high = (size_t)ranks;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (lanes[middle] <= address)
            low = middle;
        else
            high = middle;
    }
    return lanes[low];
}

static void mark_piece(const windows *w, const piece *p, int ranks) {
    marking m = {.marks = w->list, .unit = w->window_bytes};
    if (w->lanes) {
        m.origin = lane_start(w->lanes, ranks, p->file_offset);
        m.unit = w->region_bytes;
    }
    (p->direct ? mark_edges : mark_short)(p, &m);
}

/* A region fits into a slot of the queue, and into an area where ranks share memory. */
static void choose_sizes(windows *w, const dcp_comm *comm) {
    uint64_t ranks = (uint64_t)comm->size, region = WINDOW_BYTES / ranks / PAGE_BYTES * PAGE_BYTES;
    if (region > IO_SLOT_BYTES) region = IO_SLOT_BYTES;
    if (region < PAGE_BYTES) region = PAGE_BYTES;
    if (comm->shared && region > comm->shared->area_bytes) region = comm->shared->area_bytes;
    w->region_bytes = region;
    w->window_bytes = region * ranks;
}

/* Of `count` windows. */
static int find(dcp_comm *comm, const piece *pieces, size_t n, uint64_t count, windows *w,
                dcp_error *err) {
    w->list = calloc(count, sizeof *w->list);
    int status = comm_agree(comm, w->list ? DCP_OK : core_fail_memory(err, count * 8), err);
    if (status) goto free_list;
    for (size_t i = 0; i < n; i++) mark_piece(w, &pieces[i], comm->size);
    if (n && pieces[0].skip && !w->lanes) unmark(pieces[0].skip, w->list, w->window_bytes);
    status = comm_allreduce(comm, w->list, count, DCP_REDUCE_MAX, err);
    if (status) goto free_list;
    for (uint64_t i = 0; i < count; i++)
        if (w->list[i]) w->list[w->n++] = i;
    return DCP_OK;
free_list:
    windows_free(w);
    return status;
}

int windows_find(dcp_comm *comm, const piece *pieces, size_t n, uint64_t file_bytes, windows *out,
                 dcp_error *err) {
    windows w = {0};
    choose_sizes(&w, comm);
    int status = find(comm, pieces, n, file_bytes / w.window_bytes + 1, &w, err);
    if (!status) *out = w;
    return status;
}

int windows_find_lanes(dcp_comm *comm, const piece *pieces, size_t n, const uint64_t *lanes,
                       windows *out, dcp_error *err) {
    windows w = {.lanes = lanes};
    uint64_t longest = 0;
    choose_sizes(&w, comm);
    for (int r = 0; r < comm->size; r++)
        if (lanes[r + 1] - lanes[r] > longest) longest = lanes[r + 1] - lanes[r];
    int status = find(comm, pieces, n, longest / w.region_bytes + 1, &w, err);
    if (!status) *out = w;
    return status;
}

void windows_free(windows *w) {
    free(w->list);
    *w = (windows){0};
}
