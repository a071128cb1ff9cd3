/* Fragments of a load, window by window, in two stages: ranks ask the owners of the regions, which
 * start to read; then owners answer and askers place what arrives. The next window's reading runs
 * while this window is answered. A rank that failed goes on exchanging. On the wire a question is
 * offset in the region and length (u32 each); the answer is the bytes, in the questions' order. */
#include <stdlib.h>
#include <string.h>

#include "comm/exchange.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "load/transfer.h"

#define PAGES (IO_SLOT_BYTES / PAGE_BYTES)
#define JOIN_PAGES 16 /* gaps up to that are read along */

typedef struct window_state {
    uint64_t window, region_start;
    unsigned slot;
    unsigned char wanted[PAGES];
    comm_message questions;   /* from all ranks */
    uint64_t *question_bytes; /* from each rank */
} window_state;

typedef struct loader {
    dcp_checkpoint *ckpt;
    dcp_comm *comm;
    io_queue *queue;
    const piece *pieces;
    size_t n, *first_ask, *first_place; /* a rank's where there are lanes, else one */
    windows windows;
    window_state states[2];
    comm_message send, receive;
    uint64_t *send_bytes, *receive_bytes, asking_start;
    const unsigned char *arrived, *arrived_end;
    int status; /* of this rank alone */
    dcp_error *err;
} loader;

static int ask(void *ctx, const fragment *f) {
    loader *l = ctx;
    unsigned char *at = comm_append(&l->send, 8);
    if (!at) {
        l->status = core_fail_memory(l->err, l->send.bytes);
        return 1;
    }
    put_u32(at, (uint32_t)(f->file_offset - l->asking_start));
    put_u32(at + 4, (uint32_t)f->bytes);
    return 0;
}

static void mark_wanted(window_state *s) {
    memset(s->wanted, 0, sizeof s->wanted);
    for (uint64_t at = 0; at < s->questions.bytes; at += 8) {
        uint32_t offset = get_u32(s->questions.data + at);
        uint32_t bytes = get_u32(s->questions.data + at + 4);
        for (uint32_t page = offset / PAGE_BYTES; page <= (offset + bytes - 1) / PAGE_BYTES; page++)
            s->wanted[page] = 1;
    }
}

/* Reads pages [first, end) of the region; a file may end in between. */
static void read_pages(loader *l, const window_state *s, size_t first, size_t end) {
    uint64_t at = s->region_start + first * PAGE_BYTES, stop = s->region_start + end * PAGE_BYTES;
    while (at < stop) {
        const ckpt_file *file = load_file(l->ckpt, at);
        uint64_t file_end = file->base + file->ub.file_bytes;
        uint64_t to = file_end < stop ? file_end : stop;
        load_read(l->ckpt, l->queue, s->slot,
                  io_queue_buffer(l->queue, s->slot) + (at - s->region_start), to - at, at);
        at = to;
    }
}

static void start_reading(loader *l, window_state *s) {
    s->slot = io_queue_next(l->queue);
    for (size_t page = 0; page < PAGES;) {
        if (!s->wanted[page]) {
            page++;
            continue;
        }
        size_t first = page, last = page;
        for (; page < PAGES && page - last <= JOIN_PAGES; page++)
            if (s->wanted[page]) last = page;
        read_pages(l, s, first, last + 1);
        page = last + 1;
    }
}

/* Where the walk through rank's regions stands. */
static size_t *cursor(const loader *l, size_t *cursors, int rank) {
    return l->windows.lanes ? &cursors[rank] : cursors;
}

/* Walks start where the lanes do. */
static void set_cursors(const loader *l) {
    for (int r = 0; l->windows.lanes && r < l->comm->size; r++)
        l->first_ask[r] = l->first_place[r] = piece_find(l->pieces, l->n, l->windows.lanes[r]);
}

static int ask_window(loader *l, window_state *s, uint64_t window, dcp_error *err) {
    s->window = window;
    s->region_start = windows_region(&l->windows, window, l->comm->rank);
    l->send.bytes = 0;
    for (int r = 0; r < l->comm->size; r++) {
        uint64_t before = l->send.bytes;
        l->asking_start = windows_region(&l->windows, window, r);
        piece_fragments(l->pieces, l->n, cursor(l, l->first_ask, r), l->asking_start,
                        windows_region_end(&l->windows, window, r), ask, l);
        l->send_bytes[r] = l->send.bytes - before;
    }
    int status =
        comm_exchange(l->comm, &l->send, l->send_bytes, &s->questions, s->question_bytes, err);
    if (status) return status;
    mark_wanted(s);
    start_reading(l, s);
    return DCP_OK;
}

static void answer(loader *l, const window_state *s) {
    const unsigned char *at = s->questions.data, *region = io_queue_buffer(l->queue, s->slot);
    l->send.bytes = 0;
    for (int r = 0; r < l->comm->size; r++) {
        uint64_t before = l->send.bytes;
        for (const unsigned char *end = at + s->question_bytes[r]; at < end; at += 8) {
            uint32_t bytes = get_u32(at + 4);
            unsigned char *to = comm_append(&l->send, bytes);
            if (to)
                memcpy(to, region + get_u32(at), bytes);
            else
                l->status = core_fail_memory(l->err, l->send.bytes);
        }
        l->send_bytes[r] = l->send.bytes - before;
    }
}

static int place(void *ctx, const fragment *f) {
    loader *l = ctx;
    if ((uint64_t)(l->arrived_end - l->arrived) < f->bytes) { /* an owner was short of memory */
        if (!l->status) l->status = core_fail_memory(l->err, f->bytes);
        return 1;
    }
    unsigned char *to = (unsigned char *)f->piece->box->data + f->box_offset;
    memcpy(to, l->arrived, f->bytes);
    piece_sum(f->piece, f->dataset_offset, to, f->bytes);
    l->arrived += f->bytes;
    return 0;
}

static int place_window(loader *l, const window_state *s, dcp_error *err) {
    io_queue_wait(l->queue, s->slot);
    if (!l->status) l->status = io_queue_status(l->queue, l->err);
    answer(l, s);
    int status =
        comm_exchange(l->comm, &l->send, l->send_bytes, &l->receive, l->receive_bytes, err);
    if (status) return status;
    l->arrived = l->receive.data;
    l->arrived_end = l->arrived + l->receive.bytes;
    for (int r = 0; r < l->comm->size; r++) {
        uint64_t start = windows_region(&l->windows, s->window, r);
        piece_fragments(l->pieces, l->n, cursor(l, l->first_place, r), start,
                        windows_region_end(&l->windows, s->window, r), place, l);
    }
    return DCP_OK;
}

static int move_windows(loader *l, dcp_error *err) {
    size_t n = l->windows.n;
    int status = n ? ask_window(l, &l->states[0], l->windows.list[0], err) : DCP_OK;
    for (size_t i = 0; i < n && !status; i++) {
        if (i + 1 < n) status = ask_window(l, &l->states[(i + 1) % 2], l->windows.list[i + 1], err);
        if (!status) status = place_window(l, &l->states[i % 2], err);
    }
    return status;
}

static int find_windows(loader *l, dcp_error *err) {
    const dcp_checkpoint *ckpt = l->ckpt;
    if (ckpt->lanes)
        return windows_find_lanes(l->comm, l->pieces, l->n, ckpt->lanes, &l->windows, err);
    return windows_find(l->comm, l->pieces, l->n, ckpt->address_end, &l->windows, err);
}

int load_fragments(dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                   dcp_error *err) {
    dcp_error local = {.rank = -1}; /* apart from the collectives' */
    loader l = {
        .ckpt = ckpt, .comm = ckpt->comm, .queue = queue, .pieces = pieces, .n = n, .err = &local};
    int status = find_windows(&l, err);
    if (status) return status;
    size_t ranks = (size_t)l.comm->size;
    uint64_t *counts = calloc(4 * ranks, sizeof *counts);
    size_t *cursors = calloc(2 * ranks, sizeof *cursors);
    status =
        comm_agree(l.comm, counts && cursors ? DCP_OK : core_fail_memory(err, 48 * ranks), err);
    if (!status) {
        l.send_bytes = counts;
        l.receive_bytes = counts + ranks;
        l.states[0].question_bytes = counts + 2 * ranks;
        l.states[1].question_bytes = counts + 3 * ranks;
        l.first_ask = cursors;
        l.first_place = cursors + ranks;
        set_cursors(&l);
        status = move_windows(&l, err);
        if (!status) {
            status = comm_agree(l.comm, l.status, &local);
            if (status && err) *err = local;
        }
    }
    io_queue_drain(queue);
    free(l.send.data);
    free(l.receive.data);
    free(l.states[0].questions.data);
    free(l.states[1].questions.data);
    free(counts);
    free(cursors);
    windows_free(&l.windows);
    return status;
}
