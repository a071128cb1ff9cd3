/* Domains lie in the aggregators' areas of the shared memory, where each rank puts its fragments,
 * or takes them from. First ranks say in the marks of an area's pages what they will do there.
 *
 * To the file a mark counts the bytes that come into the page, so that the aggregator knows which
 * pages are touched, and which are not filled: there it sets zeros. It writes from a copy, so that
 * the areas are free for the next window at once. Barriers: when the areas are ready, with all
 * counted; and when all have put, and counted for the next window.
 *
 * From the file a mark says that the page is wanted. Aggregators read into their areas; the next
 * window is being read, into their second ones, while this one is taken. Barriers: after the
 * marking, which also tells that the window before last, whose areas are read into now, was taken
 * by all; and after the reading.
 *
 * At the second one of each window, ranks also learn whether one of them has failed, and all end.
 */
#include "move/exchange_shared.h"

#include <string.h>

#include "move/transfer.h"

enum { MARK_WALK, COPY_WALK };

typedef struct sharing {
    move_exchange *x;
    const comm_shared *shared;
    uint64_t domain_start; /* of the domain that is walked */
    size_t area;           /* and the number of its area */
    unsigned slots[2];     /* of the queue, for the areas that are read into */
} sharing;

/* Fragments of a save do not overlap, so a mark is at most a page. */
static int count_bytes(void *ctx, const move_fragment *f) {
    const sharing *s = ctx;
    uint64_t at = f->file_offset - s->domain_start, end = at + f->bytes;
    while (at < end) {
        uint64_t page = at / PAGE_BYTES, to = core_min_u64(end, (page + 1) * PAGE_BYTES);
        atomic_fetch_add_explicit(&s->shared->marks[s->area][page], (uint16_t)(to - at),
                                  memory_order_relaxed);
        at = to;
    }
    return 0;
}

static int mark_wanted(void *ctx, const move_fragment *f) {
    const sharing *s = ctx;
    uint64_t offset = f->file_offset - s->domain_start, last = (offset + f->bytes - 1) / PAGE_BYTES;
    for (uint64_t page = offset / PAGE_BYTES; page <= last; page++)
        atomic_store_explicit(&s->shared->marks[s->area][page], 1, memory_order_relaxed);
    return 0;
}

static int put_fragment(void *ctx, const move_fragment *f) {
    const sharing *s = ctx;
    move_exchange_fetch(s->x, f, s->shared->areas[s->area] + (f->file_offset - s->domain_start));
    return 0;
}

static int take_fragment(void *ctx, const move_fragment *f) {
    const sharing *s = ctx;
    move_exchange_put(s->x, f, s->shared->areas[s->area] + (f->file_offset - s->domain_start));
    return 0;
}

/* All ranks' domains of the window, in their areas number `which`. */
static void walk_areas(sharing *s, int walk, uint64_t window, size_t which, move_fragment_fn fn) {
    for (int rank = 0; rank < s->x->comm->size; rank++) {
        s->domain_start = move_windows_domain(&s->x->windows, window, rank);
        s->area = 2 * (size_t)rank + which;
        move_exchange_walk(s->x, walk, window, rank, fn, s);
    }
}

/* What all ranks have marked in an area of this rank: a byte a page, not 0 where there is a mark.
 * Where `buffer` is not NULL, pages that will not be filled get zeros there. */
static void take_marks(const sharing *s, size_t area, unsigned char *buffer, unsigned char *pages) {
    for (size_t page = 0; page < s->x->windows.domain_bytes / PAGE_BYTES; page++) {
        uint16_t mark = comm_shared_take_mark(s->shared, area, page);
        pages[page] = mark != 0;
        if (buffer && mark && mark < PAGE_BYTES) memset(buffer + page * PAGE_BYTES, 0, PAGE_BYTES);
    }
}

static void write_copy(const sharing *s, uint64_t window, const unsigned char *area,
                       const unsigned char *pages) {
    unsigned slot = io_queue_next(s->x->queue);
    unsigned char *copy = io_queue_buffer(s->x->queue, slot);
    for (size_t page = 0; page < s->x->windows.domain_bytes / PAGE_BYTES; page++)
        if (pages[page]) memcpy(copy + page * PAGE_BYTES, area + page * PAGE_BYTES, PAGE_BYTES);
    move_exchange_start(s->x, window, pages, slot, copy);
}

/* The second barrier. */
static int meet(sharing *s, dcp_error *err) {
    uint64_t failed = s->x->status != DCP_OK;
    int status = comm_allreduce(s->x->comm, &failed, 1, DCP_REDUCE_MAX, err);
    s->x->is_over = failed != 0;
    return status;
}

static int write_window(sharing *s, size_t i, dcp_error *err) {
    const move_windows *w = &s->x->windows;
    const size_t area = 2 * (size_t)s->x->comm->rank;
    unsigned char pages[MOVE_DOMAIN_PAGES], *own = s->shared->areas[area];
    take_marks(s, area, own, pages);
    int status = comm_barrier(s->x->comm, err);
    if (status) return status;
    move_exchange_ask(s->x);
    walk_areas(s, COPY_WALK, w->list[i], 0, put_fragment);
    if (i + 1 < w->n) walk_areas(s, MARK_WALK, w->list[i + 1], 0, count_bytes);
    status = meet(s, err);
    if (!status && s->x->is_over)
        take_marks(s, area, NULL, pages); /* of the window that is never written */
    else if (!status)
        write_copy(s, w->list[i], own, pages);
    return status;
}

static int write_windows(sharing *s, dcp_error *err) {
    const move_windows *w = &s->x->windows;
    walk_areas(s, MARK_WALK, w->list[0], 0, count_bytes);
    int status = comm_barrier(s->x->comm, err);
    for (size_t i = 0; i < w->n && !status && !s->x->is_over; i++) status = write_window(s, i, err);
    return status;
}

static int begin_reading(sharing *s, uint64_t window, size_t which, dcp_error *err) {
    const size_t area = 2 * (size_t)s->x->comm->rank + which;
    unsigned char pages[MOVE_DOMAIN_PAGES];
    walk_areas(s, MARK_WALK, window, which, mark_wanted);
    int status = comm_barrier(s->x->comm, err);
    if (status) return status;
    take_marks(s, area, NULL, pages);
    s->slots[which] = io_queue_next(s->x->queue);
    move_exchange_start(s->x, window, pages, s->slots[which], s->shared->areas[area]);
    return DCP_OK;
}

static int read_windows(sharing *s, dcp_error *err) {
    const move_windows *w = &s->x->windows;
    int status = begin_reading(s, w->list[0], 0, err);
    for (size_t i = 0; i < w->n && !status && !s->x->is_over; i++) {
        if (i + 1 < w->n) status = begin_reading(s, w->list[i + 1], (i + 1) % 2, err);
        if (status) break;
        move_exchange_wait(s->x, s->slots[i % 2]);
        move_exchange_ask(s->x);
        status = meet(s, err);
        if (!status) walk_areas(s, COPY_WALK, w->list[i], i % 2, take_fragment);
    }
    return status;
}

int move_exchange_by_shared_memory(move_exchange *x, dcp_error *err) {
    sharing s = {.x = x, .shared = x->comm->shared};
    if (!x->windows.n) return DCP_OK;
    return (x->transfer->direction == MOVE_TO_FILE ? write_windows : read_windows)(&s, err);
}
