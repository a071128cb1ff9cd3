/* Fragments of a load through shared memory. Ranks mark the pages that they want in the areas of
 * the regions' owners, who read them there; then each takes its fragments from where they were
 * read. The next window is being read while this one is taken.
 *
 * Barriers: after the marking, which also tells that the window before last, whose areas are read
 * into now, was taken by all; and after the reading. */
#include "load/regions.h"

enum { MARK, TAKE };

typedef struct carrier {
    regions *r;
    const comm_shared *shared;
    unsigned slots[2]; /* of the queue, for the areas */
    uint64_t start;    /* of the region that is walked */
    size_t area;       /* its number */
} carrier;

static int mark(void *ctx, const fragment *f) {
    const carrier *c = ctx;
    uint64_t offset = f->file_offset - c->start, last = (offset + f->bytes - 1) / PAGE_BYTES;
    for (uint64_t page = offset / PAGE_BYTES; page <= last; page++)
        atomic_store_explicit(&c->shared->marks[c->area][page], 1, memory_order_relaxed);
    return 0;
}

static int take(void *ctx, const fragment *f) {
    const carrier *c = ctx;
    regions_take(c->r, f, c->shared->areas[c->area] + (f->file_offset - c->start));
    return 0;
}

/* All ranks' regions of the window, in their areas number `which`. */
static void walk(carrier *c, int number, uint64_t window, size_t which, fragment_fn fn) {
    for (int rank = 0; rank < c->r->comm->size; rank++) {
        c->start = windows_region(&c->r->windows, window, rank);
        c->area = 2 * (size_t)rank + which;
        regions_walk(c->r, number, window, rank, fn, c);
    }
}

static void read_own(carrier *c, uint64_t window, size_t which) {
    unsigned char wanted[REGION_PAGES];
    size_t area = 2 * (size_t)c->r->comm->rank + which;
    for (size_t page = 0; page < c->r->windows.region_bytes / PAGE_BYTES; page++)
        wanted[page] = comm_shared_take_mark(c->shared, area, page) != 0;
    c->slots[which] = io_queue_next(c->r->queue);
    regions_read(c->r, window, wanted, c->slots[which], c->shared->areas[area]);
}

static int begin(carrier *c, uint64_t window, size_t which, dcp_error *err) {
    walk(c, MARK, window, which, mark);
    int status = comm_barrier(c->r->comm, err);
    if (!status) read_own(c, window, which);
    return status;
}

int bring_by_memory(regions *r, dcp_error *err) {
    carrier c = {.r = r, .shared = r->comm->shared};
    const windows *w = &r->windows;
    int status = w->n ? begin(&c, w->list[0], 0, err) : DCP_OK;
    for (size_t i = 0; i < w->n && !status; i++) {
        if (i + 1 < w->n) status = begin(&c, w->list[i + 1], (i + 1) % 2, err);
        if (status) break;
        regions_wait(r, c.slots[i % 2]);
        status = comm_barrier(r->comm, err);
        if (!status) walk(&c, TAKE, w->list[i], i % 2, take);
    }
    return status;
}
