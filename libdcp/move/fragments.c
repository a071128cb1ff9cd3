/* Windows, walks over fragments, and the pages of this rank's domains. */
#include "move/fragments.h"

#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "move/box_bytes.h"
#include "move/kept.h"
#include "move/progress.h"
#include "move/transfer.h"

#define JOIN_PAGES 16 /* wanted pages that are not further apart are read at once */

/* Where a walk through rank's domains stands. */
static size_t *cursor_of(const move_exchange *x, int walk, int rank) {
    return &x->cursors[walk * x->comm->size + (x->windows.reader_ranges ? rank : 0)];
}

int move_exchange_open(move_exchange *x, const move_transfer *t, dcp_error *err) {
    *x = (move_exchange){.transfer = t, .comm = t->comm, .queue = t->queue, .error = {.rank = -1}};
    int status = move_kept_take(t, &x->windows, err);
    if (status) return status;
    if (t->failure) {
        x->status = t->failure->status;
        x->error = *t->failure;
    }
    x->cursors = calloc(MOVE_WALKS * (size_t)x->comm->size, sizeof *x->cursors);
    for (int rank = 0; t->reader_ranges && x->cursors && rank < x->comm->size; rank++) {
        size_t first = move_pieces_find(t->pieces, t->n_pieces, t->reader_ranges[rank]);
        for (int walk = 0; walk < MOVE_WALKS; walk++) *cursor_of(x, walk, rank) = first;
    } /* walks start where the ranges do */
    return DCP_OK;
}

void move_exchange_close(move_exchange *x) {
    free(x->cursors);
    move_kept_return(x->transfer, &x->windows);
}

void move_exchange_ask(move_exchange *x) {
    move_progress *progress = x->transfer->progress;
    if (x->status) return;
    x->status = move_progress_ask(progress, &x->error);
    if (x->status) move_progress_release(progress);
}

void move_exchange_walk(const move_exchange *x, int walk, const move_domain *domain,
                        move_fragment_fn fn, void *ctx) {
    const move_transfer *t = x->transfer;
    move_fragments(t->pieces, t->n_pieces, cursor_of(x, walk, domain->aggregator->rank),
                   domain->start, domain->end, fn, ctx);
}

void move_exchange_fetch(move_exchange *x, const move_fragment *f, unsigned char *to) {
    if (!x->status)
        x->status =
            move_box_take(f->piece, f->dataset_offset, f->box_offset, f->bytes, to, &x->error);
    if (x->status) {
        memset(to, 0, f->bytes);
        return;
    }
    if (f->piece->box) move_progress_written(x->transfer->progress, f->bytes);
}

void move_exchange_put(move_exchange *x, const move_fragment *f, const unsigned char *from) {
    if (x->status) return;
    x->status =
        move_box_place(f->piece, f->dataset_offset, f->box_offset, from, f->bytes, &x->error);
    if (f->piece->box) move_progress_written(x->transfer->progress, f->bytes);
}

/* Pages [first, end) of the domain that starts at `start`; a file may end in between. */
static void start_pages(const move_transfer *t, uint64_t start, size_t first, size_t end,
                        unsigned slot, unsigned char *buffer) {
    uint64_t at = start + first * PAGE_BYTES, stop = start + end * PAGE_BYTES;
    while (at < stop) {
        uint64_t to = core_min_u64(move_transfer_file(t, at)->end, stop);
        move_transfer_start(t, slot, buffer + (at - start), to - at, at);
        at = to;
    }
}

void move_exchange_start(const move_exchange *x, const move_domain *domain,
                         const unsigned char *pages, unsigned slot, unsigned char *buffer) {
    const size_t n = x->windows.domain_bytes / PAGE_BYTES;
    if (x->status) return;
    const size_t reach = x->transfer->direction == MOVE_TO_FILE ? 1 : JOIN_PAGES;
    for (size_t page = 0; page < n;) {
        if (!pages[page]) {
            page++;
            continue;
        }
        size_t first = page, last = page;
        for (; page < n && page - last <= reach; page++)
            if (pages[page]) last = page;
        start_pages(x->transfer, domain->start, first, last + 1, slot, buffer);
        page = last + 1;
    }
    io_queue_send(x->queue);
}

void move_exchange_wait(move_exchange *x, unsigned slot) {
    io_queue_wait(x->queue, slot);
    if (!x->status) x->status = io_queue_status(x->queue, &x->error);
}

/* Fragments of a save do not overlap, so a mark is at most a page. */
void move_half_count(_Atomic uint16_t *marks, uint64_t offset, uint64_t bytes) {
    const uint64_t end = offset + bytes;
    while (offset < end) {
        uint64_t page = offset / PAGE_BYTES, to = core_min_u64(end, (page + 1) * PAGE_BYTES);
        atomic_fetch_add_explicit(&marks[page], (uint16_t)(to - offset), memory_order_relaxed);
        offset = to;
    }
}
