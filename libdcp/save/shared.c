/* Fragments of a save through shared memory: each rank puts its own straight into the areas of the
 * regions' owners, who write them from a copy, so that the areas are free for the next window at
 * once.
 *
 * First ranks count what they will put into each page, so that the owner knows which pages are
 * touched, and which not filled: there it sets zeros. Barriers: when the areas are ready, with all
 * counted; and when all have put, and counted for the next window. */
#include <string.h>

#include "save/region.h"

enum { COUNT, PUT };

typedef struct carrier {
    fragments *f;
    const comm_shared *shared;
    size_t first[2]; /* where each walk stands */
    region own;
    uint64_t start; /* of the region that is walked */
    size_t area;    /* its number: ranks use their first ones */
} carrier;

/* Fragments of a save do not overlap, so a mark is at most a page. */
static int count(void *ctx, const fragment *part) {
    const carrier *c = ctx;
    uint64_t at = part->file_offset - c->start, end = at + part->bytes;
    while (at < end) {
        uint64_t page = at / PAGE_BYTES, page_end = (page + 1) * PAGE_BYTES;
        uint64_t to = end < page_end ? end : page_end;
        atomic_fetch_add_explicit(&c->shared->marks[c->area][page], (uint16_t)(to - at),
                                  memory_order_relaxed);
        at = to;
    }
    return 0;
}

static int put(void *ctx, const fragment *part) {
    const carrier *c = ctx;
    fragments_pack(c->f, part, c->shared->areas[c->area] + (part->file_offset - c->start));
    return 0;
}

/* All ranks' regions of the window. */
static void walk(carrier *c, int number, uint64_t window, fragment_fn fn) {
    const fragments *f = c->f;
    for (int rank = 0; rank < f->comm->size; rank++) {
        c->start = windows_region(&f->windows, window, rank);
        c->area = 2 * (size_t)rank;
        piece_fragments(f->pieces, f->n, &c->first[number], c->start,
                        c->start + f->windows.region_bytes, fn, c);
    }
}

static void make_ready(carrier *c, uint64_t window) {
    const fragments *f = c->f;
    size_t area = 2 * (size_t)f->comm->rank;
    region *own = &c->own;
    own->buffer = c->shared->areas[area];
    own->start = windows_region(&f->windows, window, f->comm->rank);
    for (size_t page = 0; page < f->windows.region_bytes / PAGE_BYTES; page++) {
        uint16_t bytes = comm_shared_take_mark(c->shared, area, page);
        own->touched[page] = bytes != 0;
        if (bytes && bytes < PAGE_BYTES) memset(own->buffer + page * PAGE_BYTES, 0, PAGE_BYTES);
    }
}

static void write_copy(carrier *c) {
    io_queue *queue = c->f->queue;
    unsigned slot = io_queue_next(queue);
    region copy = c->own;
    copy.buffer = io_queue_buffer(queue, slot);
    for (size_t page = 0; page < c->f->windows.region_bytes / PAGE_BYTES; page++)
        if (copy.touched[page])
            memcpy(copy.buffer + page * PAGE_BYTES, c->own.buffer + page * PAGE_BYTES, PAGE_BYTES);
    region_write(&copy, queue, slot, c->f->file);
}

static int move_window(carrier *c, size_t i, dcp_error *err) {
    const fragments *f = c->f;
    make_ready(c, f->windows.list[i]);
    int status = comm_barrier(f->comm, err);
    if (status) return status;
    walk(c, PUT, f->windows.list[i], put);
    if (i + 1 < f->windows.n) walk(c, COUNT, f->windows.list[i + 1], count);
    status = comm_barrier(f->comm, err);
    if (!status && !f->status) write_copy(c);
    return status;
}

int send_by_memory(fragments *f, dcp_error *err) {
    carrier c = {.f = f, .shared = f->comm->shared};
    if (!f->windows.n) return DCP_OK;
    walk(&c, COUNT, f->windows.list[0], count);
    int status = comm_barrier(f->comm, err);
    for (size_t i = 0; i < f->windows.n && !status; i++) status = move_window(&c, i, err);
    return status;
}
