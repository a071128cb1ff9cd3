/* Fragments of a save, window by window: packed for the owners of their regions, exchanged, placed
 * in the owner's region buffer, written. A rank that failed goes on exchanging, so that nobody
 * waits for it; what it sends then is never published. A fragment on the wire: its offset in the
 * region and its length (u32 each), then its bytes. */
#include <stdlib.h>
#include <string.h>

#include "comm/exchange.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "save/write.h"

#define PAGES (IO_SLOT_BYTES / PAGE_BYTES)

typedef struct region {
    unsigned char *buffer;
    uint64_t start; /* in the file */
    unsigned char touched[PAGES];
} region;

typedef struct sender {
    region *own;
    comm_message message;
    uint64_t region_start; /* of the region being packed */
    int to_self;
    save_watch *watch;
    int status;
    dcp_error *err;
} sender;

/* Pages get their zeros when the first fragment meets them. */
static unsigned char *touch(region *own, uint64_t offset, uint64_t bytes) {
    for (uint64_t page = offset / PAGE_BYTES; page <= (offset + bytes - 1) / PAGE_BYTES; page++)
        if (!own->touched[page]) {
            own->touched[page] = 1;
            memset(own->buffer + page * PAGE_BYTES, 0, PAGE_BYTES);
        }
    return own->buffer + offset;
}

static int pack(void *ctx, const fragment *f) {
    sender *s = ctx;
    uint64_t offset = f->file_offset - s->region_start;
    unsigned char *to;
    if (s->to_self) {
        to = touch(s->own, offset, f->bytes);
    } else {
        to = comm_append(&s->message, 8 + f->bytes);
        if (!to) {
            s->status = core_fail_memory(s->err, s->message.bytes);
            return 1;
        }
        put_u32(to, (uint32_t)offset);
        put_u32(to + 4, (uint32_t)f->bytes);
        to += 8;
    }
    int status = piece_fetch(f->piece, f->box_offset, f->bytes, to, s->status ? NULL : s->err);
    if (status && !s->status) s->status = status;
    if (!status) piece_sum(f->piece, f->dataset_offset, to, f->bytes);
    if (f->piece->box) watch_progress(s->watch, f->bytes);
    return 0;
}

static void place(region *own, const comm_message *message) {
    const unsigned char *at = message->data, *end = at + message->bytes;
    while (at < end) {
        uint32_t offset = get_u32(at), bytes = get_u32(at + 4);
        memcpy(touch(own, offset, bytes), at + 8, bytes);
        at += 8 + (uint64_t)bytes;
    }
}

/* One request for each row of touched pages. */
static void flush(io_queue *queue, unsigned slot, const io_file *file, const region *own) {
    for (size_t page = 0; page < PAGES;) {
        if (!own->touched[page]) {
            page++;
            continue;
        }
        size_t first = page;
        while (page < PAGES && own->touched[page]) page++;
        io_queue_write(queue, slot, file, own->buffer + first * PAGE_BYTES,
                       (page - first) * PAGE_BYTES, own->start + first * PAGE_BYTES);
    }
}

typedef struct transfer {
    dcp_comm *comm;
    io_queue *queue;
    const io_file *file;
    const piece *pieces;
    size_t n, first;
    windows windows;
    region own;
    sender sender;
    comm_message receive;
    uint64_t *send_bytes, *receive_bytes;
} transfer;

static int move_window(transfer *t, uint64_t window, dcp_error *err) {
    unsigned slot = io_queue_next(t->queue);
    t->own.buffer = io_queue_buffer(t->queue, slot);
    t->own.start = windows_region(&t->windows, window, t->comm->rank);
    memset(t->own.touched, 0, sizeof t->own.touched);
    t->sender.message.bytes = 0;
    for (int r = 0; r < t->comm->size; r++) {
        uint64_t before = t->sender.message.bytes;
        t->sender.region_start = windows_region(&t->windows, window, r);
        t->sender.to_self = r == t->comm->rank;
        piece_fragments(t->pieces, t->n, &t->first, t->sender.region_start,
                        t->sender.region_start + t->windows.region_bytes, pack, &t->sender);
        t->send_bytes[r] = t->sender.message.bytes - before;
    }
    if (t->comm->size > 1) {
        int status = comm_exchange(t->comm, &t->sender.message, t->send_bytes, &t->receive,
                                   t->receive_bytes, err);
        if (status) return status;
        place(&t->own, &t->receive);
    }
    if (!t->sender.status) flush(t->queue, slot, t->file, &t->own);
    return DCP_OK;
}

int write_fragments(dcp_comm *comm, io_queue *queue, const io_file *file, uint64_t file_bytes,
                    const piece *pieces, size_t n, save_watch *watch, dcp_error *err) {
    transfer t = {.comm = comm, .queue = queue, .file = file, .pieces = pieces, .n = n};
    dcp_error local = {.rank = -1}; /* apart from the collectives' */
    t.sender.own = &t.own;
    t.sender.watch = watch;
    t.sender.err = &local;
    int status = windows_find(comm, pieces, n, file_bytes, &t.windows, err);
    if (status) return status;
    t.send_bytes = calloc(2 * (size_t)comm->size, sizeof *t.send_bytes);
    t.receive_bytes = t.send_bytes + comm->size;
    status = comm_agree(comm, t.send_bytes ? DCP_OK : core_fail_memory(err, 16), err);
    for (size_t i = 0; i < t.windows.n && !status; i++)
        status = move_window(&t, t.windows.list[i], err);
    if (!status && t.sender.status) {
        status = t.sender.status;
        if (err) *err = local;
    }
    io_queue_drain(queue);
    free(t.sender.message.data);
    free(t.receive.data);
    free(t.send_bytes);
    windows_free(&t.windows);
    return status;
}
