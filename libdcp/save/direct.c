/* Whole pages of long runs, written by their holder: from the memory itself where its address suits
 * O_DIRECT, else through the queue's buffers. Short parts share a slot and go to the disk together,
 * which costs fewer interrupts; parts are checksummed while the slot before is in flight.
 *
 * Where somebody waits for the memory and little is left, the rest is copied at once, and written
 * from the copy. */
#include <stdlib.h>

#include "core/fail.h"
#include "save/write.h"

typedef struct writer {
    io_queue *queue;
    const io_file *file;
    save_progress *progress;
    int may_stage;
    unsigned slot;
    uint64_t room; /* bytes that the slot may still take; its buffer is filled from the start */
    uint64_t written, left; /* bytes of parts */
    unsigned char *stage;   /* the copy of what was left; NULL: none */
    uint64_t staged_at;     /* `written` when it was made */
    dcp_error *err;
} writer;

static int add_bytes(void *ctx, const fragment *part) {
    *(uint64_t *)ctx += part->bytes;
    return DCP_OK;
}

typedef struct stager {
    writer *w;
    uint64_t at; /* bytes of parts before this one */
    unsigned char *to;
} stager;

static int copy_part(void *ctx, const fragment *part) {
    stager *s = ctx;
    uint64_t at = s->at;
    s->at += part->bytes;
    if (at < s->w->written) return DCP_OK;
    const int status = piece_fetch(part->piece, part->box_offset, part->bytes,
                                   s->to + (at - s->w->written), s->w->err);
    save_progress_read(s->w->progress, part->bytes);
    return status;
}

/* Copies what is left and releases the memory. Without memory for a copy the save just goes on. */
static int stage(writer *w, const piece *pieces, size_t n) {
    void *memory;
    w->may_stage = 0;
    if (posix_memalign(&memory, PAGE_BYTES, w->left)) return DCP_OK;
    stager s = {w, 0, memory};
    int status = piece_parts(pieces, n, copy_part, &s);
    w->stage = memory;
    w->staged_at = w->written;
    io_queue_drain(w->queue); /* it may still be reading the memory */
    if (!status) save_progress_release(w->progress);
    return status;
}

typedef struct walk {
    writer *w;
    const piece *pieces;
    size_t n;
} walk;

static int write_part(void *ctx, const fragment *part) {
    const walk *all = ctx;
    writer *w = all->w;
    const piece *p = part->piece;
    int status = DCP_OK;
    if (w->may_stage && save_progress_wants_copy(w->progress, w->left))
        status = stage(w, all->pieces, all->n);
    if (status) return status;
    if (w->room < part->bytes) {
        w->slot = io_queue_next(w->queue);
        w->room = IO_SLOT_BYTES;
    }
    const unsigned char *data =
        w->stage ? w->stage + (w->written - w->staged_at) : piece_memory(p, part->box_offset);
    if (!data || (uintptr_t)data % w->file->memory_align) {
        unsigned char *buffer = io_queue_buffer(w->queue, w->slot) + (IO_SLOT_BYTES - w->room);
        status = piece_fetch(p, part->box_offset, part->bytes, buffer, w->err);
        if (status) return status;
        data = buffer;
    }
    w->room -= part->bytes;
    io_queue_write(w->queue, w->slot, w->file, data, part->bytes, part->file_offset);
    if (!w->room) io_queue_send(w->queue);
    piece_sum(p, part->dataset_offset, data, part->bytes);
    w->written += part->bytes;
    w->left -= part->bytes;
    save_progress_written(w->progress, part->bytes);
    return io_queue_status(w->queue, w->err);
}

int write_direct(io_queue *queue, const io_file *file, const piece *pieces, size_t n,
                 save_progress *progress, int is_last, dcp_error *err) {
    writer w = {
        .queue = queue, .file = file, .progress = progress, .may_stage = is_last, .err = err};
    walk all = {&w, pieces, n};
    piece_parts(pieces, n, add_bytes, &w.left);
    int status = piece_parts(pieces, n, write_part, &all);
    io_queue_drain(queue);
    free(w.stage);
    return status ? status : io_queue_status(queue, err);
}
