/* Choosing windows. A rank marks the windows that its fragments touch; those that nobody marked are
 * skipped by all. */
#include "move/window.h"

#include <stdlib.h>

#include "core/fail.h"
#include "core/search.h"

/* Windows from one address on, `unit` bytes apart. */
typedef struct marking {
    uint64_t *marks, origin, unit;
} marking;

static void mark_windows(const marking *m, uint64_t start, uint64_t end) {
    if (start >= end) return;
    uint64_t last = (end - 1 - m->origin) / m->unit;
    for (uint64_t w = (start - m->origin) / m->unit; w <= last; w++) m->marks[w] = 1;
}

/* Short runs: one run a window is enough to mark it. */
static void mark_short(const move_piece *p, const marking *m) {
    for (uint64_t i = 0, a, b; i < p->copy->runs;) {
        core_box_copy_run(p->copy, i, &a, &b);
        uint64_t start = p->file_offset + a, end = start + p->copy->run_bytes;
        mark_windows(m, start, end);
        uint64_t next = m->origin + ((end - 1 - m->origin) / m->unit + 1) * m->unit;
        uint64_t after = core_box_copy_find(p->copy, next - p->file_offset);
        i = after > i ? after : i + 1;
    }
}

static void mark_edges(const move_piece *p, const marking *m) {
    for (uint64_t i = 0, a, b, from, to; i < p->copy->runs; i++) {
        core_box_copy_run(p->copy, i, &a, &b);
        move_piece_interior(p, i, &from, &to);
        mark_windows(m, p->file_offset + a, from);
        mark_windows(m, to, p->file_offset + a + p->copy->run_bytes);
    }
}

/* Windows inside what all ranks skip. */
static void unmark_skipped(const move_span_list *skip, uint64_t *marks, uint64_t window_bytes) {
    for (size_t i = 0; i < skip->n; i++)
        for (uint64_t w = (skip->list[i].from + window_bytes - 1) / window_bytes;
             (w + 1) * window_bytes <= skip->list[i].to; w++)
            marks[w] = 0;
}

/* Where the reader range of the address begins. */
static uint64_t range_start(const uint64_t *ranges, int ranks, uint64_t address) {
    return ranges[core_first_from(ranges, (size_t)ranks, sizeof *ranges, address + 1) - 1];
}

static void mark_piece(const move_windows *w, const move_piece *p, int ranks) {
    marking m = {.marks = w->list, .unit = w->window_bytes};
    if (w->reader_ranges) {
        m.origin = range_start(w->reader_ranges, ranks, p->file_offset);
        m.unit = w->domain_bytes;
    }
    (p->bulk ? mark_edges : mark_short)(p, &m);
}

/* A domain fits into a slot of the queue, and into an area where ranks share memory. It has whole
 * pages of any kernel, so all ranks cut the file alike whatever theirs has. */
static void choose_sizes(move_windows *w, const dcp_comm *comm) {
    uint64_t ranks = (uint64_t)comm->size,
             domain = MOVE_WINDOW_BYTES / ranks / LARGEST_PAGE_BYTES * LARGEST_PAGE_BYTES;
    if (domain > IO_SLOT_BYTES) domain = IO_SLOT_BYTES;
    if (domain < LARGEST_PAGE_BYTES) domain = LARGEST_PAGE_BYTES;
    if (comm->shared && domain > comm->shared->area_bytes) domain = comm->shared->area_bytes;
    w->domain_bytes = domain;
    w->window_bytes = domain * ranks;
}

/* Of `count` windows. */
static int find_marked(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t count,
                       move_windows *w, dcp_error *err) {
    w->list = calloc(count, sizeof *w->list);
    int status = comm_agree(comm, w->list ? DCP_OK : core_fail_memory(err, count * 8), err);
    if (status) goto free_list;
    for (size_t i = 0; i < n; i++) mark_piece(w, &pieces[i], comm->size);
    if (n && pieces[0].skip && !w->reader_ranges)
        unmark_skipped(pieces[0].skip, w->list, w->window_bytes);
    status = comm_allreduce(comm, w->list, count, DCP_REDUCE_MAX, err);
    if (status) goto free_list;
    for (uint64_t i = 0; i < count; i++)
        if (w->list[i]) w->list[w->n++] = i;
    return DCP_OK;
free_list:
    move_windows_free(w);
    return status;
}

int move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                      const uint64_t *reader_ranges, move_windows *out, dcp_error *err) {
    move_windows w = {.reader_ranges = reader_ranges};
    uint64_t longest = 0;
    choose_sizes(&w, comm);
    for (int r = 0; r < comm->size && reader_ranges; r++)
        if (reader_ranges[r + 1] - reader_ranges[r] > longest)
            longest = reader_ranges[r + 1] - reader_ranges[r];
    uint64_t count = reader_ranges ? longest / w.domain_bytes : end / w.window_bytes;
    int status = find_marked(comm, pieces, n, count + 1, &w, err);
    if (!status) *out = w;
    return status;
}

void move_windows_free(move_windows *w) {
    free(w->list);
    *w = (move_windows){0};
}
