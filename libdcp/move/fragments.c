/* Windows, walks over fragments, and the pages of this rank's domains. */
#include "move/fragments.h"

#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "move/box_bytes.h"
#include "move/progress.h"
#include "move/transfer.h"

#define JOIN_PAGES 16 /* wanted pages that are not further apart are read at once */

/* Where a walk through rank's domains stands. */
static size_t *cursor_of(const move_exchange *x, int walk, int rank) {
    return &x->cursors[walk * x->comm->size + (x->windows.reader_ranges ? rank : 0)];
}

int move_exchange_open(move_exchange *x, const move_transfer *t, dcp_error *err) {
    *x = (move_exchange){.transfer = t, .comm = t->comm, .queue = t->queue, .error = {.rank = -1}};
    int status = move_windows_find(t->comm, t->pieces, t->n_pieces, t->files[t->n_files - 1].end,
                                   t->reader_ranges, &x->windows, err);
    if (status) return status;
    size_t cursors = MOVE_WALKS * (size_t)x->comm->size;
    x->cursors = calloc(cursors, sizeof *x->cursors);
    status = comm_agree(x->comm, x->cursors ? DCP_OK : core_fail_memory(err, 8 * cursors), err);
    if (status || !t->reader_ranges) return status;
    for (int rank = 0; rank < x->comm->size; rank++) { /* walks start where the ranges do */
        size_t first = move_pieces_find(t->pieces, t->n_pieces, t->reader_ranges[rank]);
        for (int walk = 0; walk < MOVE_WALKS; walk++) *cursor_of(x, walk, rank) = first;
    }
    return DCP_OK;
}

void move_exchange_close(move_exchange *x) {
    free(x->cursors);
    move_windows_free(&x->windows);
}

void move_exchange_ask(move_exchange *x) {
    move_progress *progress = x->transfer->progress;
    if (x->status) return;
    x->status = move_progress_ask(progress, &x->error);
    if (x->status) move_progress_release(progress);
}

void move_exchange_walk(const move_exchange *x, int walk, uint64_t window, int rank,
                        move_fragment_fn fn, void *ctx) {
    const move_transfer *t = x->transfer;
    move_fragments(t->pieces, t->n_pieces, cursor_of(x, walk, rank),
                   move_windows_domain(&x->windows, window, rank),
                   move_windows_domain_end(&x->windows, window, rank), fn, ctx);
}

void move_exchange_fetch(move_exchange *x, const move_fragment *f, unsigned char *to) {
    if (!x->status) x->status = move_box_fetch(f->piece, f->box_offset, f->bytes, to, &x->error);
    if (x->status) {
        memset(to, 0, f->bytes);
        return;
    }
    move_piece_sum(f->piece, f->dataset_offset, to, f->bytes);
    if (f->piece->box) move_progress_written(x->transfer->progress, f->bytes);
}

void move_exchange_put(move_exchange *x, const move_fragment *f, const unsigned char *from) {
    if (x->status) return;
    x->status =
        move_box_place(f->piece, f->dataset_offset, f->box_offset, from, f->bytes, &x->error);
    move_progress_written(x->transfer->progress, f->bytes);
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

void move_exchange_start(const move_exchange *x, uint64_t window, const unsigned char *pages,
                         unsigned slot, unsigned char *buffer) {
    const uint64_t start = move_windows_domain(&x->windows, window, x->comm->rank);
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
        start_pages(x->transfer, start, first, last + 1, slot, buffer);
        page = last + 1;
    }
    io_queue_send(x->queue);
}

void move_exchange_wait(move_exchange *x, unsigned slot) {
    io_queue_wait(x->queue, slot);
    if (!x->status) x->status = io_queue_status(x->queue, &x->error);
}
