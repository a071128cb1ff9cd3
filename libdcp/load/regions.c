/* Windows, walks and reading, whoever carries. */
#include "load/regions.h"

#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "load/place.h"

#define JOIN_PAGES 16 /* gaps up to that are read along */

static int find_windows(regions *r, dcp_error *err) {
    const dcp_checkpoint *ckpt = r->ckpt;
    if (ckpt->lanes)
        return windows_find_lanes(r->comm, r->pieces, r->n, ckpt->lanes, &r->windows, err);
    return windows_find(r->comm, r->pieces, r->n, ckpt->address_end, &r->windows, err);
}

/* Where a walk through rank's regions stands. */
static size_t *cursor(const regions *r, int walk, int rank) {
    return &r->cursors[walk * r->comm->size + (r->windows.lanes ? rank : 0)];
}

int regions_open(regions *r, dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                 dcp_error *err) {
    *r = (regions){.ckpt = ckpt,
                   .comm = ckpt->comm,
                   .queue = queue,
                   .pieces = pieces,
                   .n = n,
                   .error = {.rank = -1}};
    int status = find_windows(r, err);
    if (status) return status;
    size_t cursors = LOAD_WALKS * (size_t)r->comm->size;
    r->cursors = calloc(cursors, sizeof *r->cursors);
    status = comm_agree(r->comm, r->cursors ? DCP_OK : core_fail_memory(err, 8 * cursors), err);
    if (status || !r->windows.lanes) return status;
    for (int rank = 0; rank < r->comm->size; rank++) { /* walks start where the lanes do */
        size_t first = piece_find(pieces, n, r->windows.lanes[rank]);
        for (int walk = 0; walk < LOAD_WALKS; walk++) *cursor(r, walk, rank) = first;
    }
    return DCP_OK;
}

void regions_close(regions *r) {
    free(r->cursors);
    windows_free(&r->windows);
}

void regions_walk(const regions *r, int walk, uint64_t window, int rank, fragment_fn fn,
                  void *ctx) {
    piece_fragments(r->pieces, r->n, cursor(r, walk, rank),
                    windows_region(&r->windows, window, rank),
                    windows_region_end(&r->windows, window, rank), fn, ctx);
}

/* Reads pages [first, end) of the region that starts at `start`; a file may end in between. */
static void read_pages(const regions *r, uint64_t start, size_t first, size_t end, unsigned slot,
                       unsigned char *buffer) {
    uint64_t at = start + first * PAGE_BYTES, stop = start + end * PAGE_BYTES;
    while (at < stop) {
        const step_file *file = load_file(r->ckpt, at);
        uint64_t file_end = file->base + file->ub.file_bytes;
        uint64_t to = file_end < stop ? file_end : stop;
        load_read(r->ckpt, r->queue, slot, buffer + (at - start), to - at, at);
        at = to;
    }
}

void regions_read(const regions *r, uint64_t window, const unsigned char *wanted, unsigned slot,
                  unsigned char *buffer) {
    uint64_t start = windows_region(&r->windows, window, r->comm->rank);
    size_t pages = r->windows.region_bytes / PAGE_BYTES;
    for (size_t page = 0; page < pages;) {
        if (!wanted[page]) {
            page++;
            continue;
        }
        size_t first = page, last = page;
        for (; page < pages && page - last <= JOIN_PAGES; page++)
            if (wanted[page]) last = page;
        read_pages(r, start, first, last + 1, slot, buffer);
        page = last + 1;
    }
    io_queue_send(r->queue);
}

void regions_wait(regions *r, unsigned slot) {
    io_queue_wait(r->queue, slot);
    if (!r->status) r->status = io_queue_status(r->queue, &r->error);
}

static void take_to_device(regions *r, const fragment *f, const unsigned char *bytes) {
    piece_sum(f->piece, f->dataset_offset, bytes, f->bytes);
    if (!r->status) r->status = place(f->piece, f->box_offset, bytes, f->bytes, &r->error);
}

void regions_take(regions *r, const fragment *f, const unsigned char *bytes) {
    unsigned char *to = f->piece->box->data;
    if (!to) {
        take_to_device(r, f, bytes);
        return;
    }
    to += f->box_offset;
    memcpy(to, bytes, f->bytes);
    piece_sum(f->piece, f->dataset_offset, to, f->bytes);
}

int load_fragments(dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                   dcp_error *err) {
    regions r;
    int status = regions_open(&r, ckpt, queue, pieces, n, err);
    if (!status) {
        status = r.comm->shared ? bring_by_memory(&r, err) : bring_by_messages(&r, err);
        if (!status) {
            status = comm_agree(r.comm, r.status, &r.error);
            if (status && err) *err = r.error;
        }
        io_queue_drain(queue);
    }
    regions_close(&r);
    return status;
}
