/* Parts go from the box's memory to the disk, or back, where its address suits O_DIRECT; else
 * through the queue's buffers. */
#include "move/bulk.h"

#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "io/queue.h"
#include "move/box_bytes.h"
#include "move/bulk_device.h"
#include "move/progress.h"
#include "move/transfer.h"

/* To a file. Short parts share a slot and go to the disk together, which costs fewer interrupts;
 * parts are checksummed while the slot before is in flight. Where somebody waits for the memory and
 * little is left, the rest is copied at once, and written from the copy. */
typedef struct bulk_writer {
    const move_transfer *transfer;
    int may_copy; /* the rest, to free the memory sooner */
    unsigned slot;
    uint64_t room; /* bytes that the slot may still take; its buffer is filled from the start */
    uint64_t written, left; /* bytes of parts */
    unsigned char *copy;    /* of what was left; NULL: none */
    uint64_t copied_at;     /* `written` when it was made */
    dcp_error *err;
} bulk_writer;

static int add_bytes(void *ctx, const move_fragment *part) {
    if (!part->piece->device) *(uint64_t *)ctx += part->bytes;
    return DCP_OK;
}

typedef struct rest_copy {
    const bulk_writer *writer;
    uint64_t at; /* bytes of parts before this one */
    unsigned char *to;
} rest_copy;

static int copy_part(void *ctx, const move_fragment *part) {
    rest_copy *c = ctx;
    const uint64_t at = c->at, written = c->writer->written;
    if (part->piece->device) return DCP_OK;
    c->at += part->bytes;
    if (at < written) return DCP_OK;
    const int status = move_box_fetch(part->piece, part->box_offset, part->bytes,
                                      c->to + (at - written), c->writer->err);
    move_progress_read(c->writer->transfer->progress, part->bytes);
    return status;
}

/* Copies what is left and releases the memory. Without memory for a copy the save just goes on. */
static int copy_rest(bulk_writer *w) {
    const move_transfer *t = w->transfer;
    void *memory;
    w->may_copy = 0;
    if (posix_memalign(&memory, PAGE_BYTES, w->left)) return DCP_OK;
    rest_copy c = {w, 0, memory};
    int status = move_bulk_parts(t->pieces, t->n_pieces, copy_part, &c);
    w->copy = memory;
    w->copied_at = w->written;
    io_queue_drain(t->queue); /* it may still be reading the memory */
    if (!status) move_progress_release(t->progress);
    return status;
}

static int write_host_part(void *ctx, const move_fragment *part) {
    bulk_writer *w = ctx;
    const move_transfer *t = w->transfer;
    const move_piece *p = part->piece;
    const io_file *file = t->files->file;
    int status = DCP_OK;
    if (p->device) return DCP_OK; /* bulk_device.h */
    if (w->may_copy && move_progress_wants_copy(t->progress, w->left)) status = copy_rest(w);
    if (status) return status;
    if (w->room < part->bytes) {
        w->slot = io_queue_next(t->queue);
        w->room = IO_SLOT_BYTES;
    }
    const unsigned char *data =
        w->copy ? w->copy + (w->written - w->copied_at) : move_piece_memory(p, part->box_offset);
    if (!data || (uintptr_t)data % file->memory_align) {
        unsigned char *buffer = io_queue_buffer(t->queue, w->slot) + (IO_SLOT_BYTES - w->room);
        status = move_box_fetch(p, part->box_offset, part->bytes, buffer, w->err);
        if (status) return status;
        data = buffer;
    }
    w->room -= part->bytes;
    io_queue_write(t->queue, w->slot, file, data, part->bytes, part->file_offset);
    if (!w->room) io_queue_send(t->queue);
    move_piece_sum(p, part->dataset_offset, data, part->bytes);
    w->written += part->bytes;
    w->left -= part->bytes;
    move_progress_written(t->progress, part->bytes);
    return io_queue_status(t->queue, w->err);
}

static int write_parts(const move_transfer *t, dcp_error *err) {
    bulk_writer w = {.transfer = t, .err = err};
    w.may_copy = t->is_last && !move_bulk_is_on_device(t);
    move_bulk_parts(t->pieces, t->n_pieces, add_bytes, &w.left);
    int status = move_bulk_parts(t->pieces, t->n_pieces, write_host_part, &w);
    io_queue_drain(t->queue);
    free(w.copy);
    if (!status) status = io_queue_status(t->queue, err);
    return status ? status : move_bulk_from_device(t, err);
}

/* What a slot reads: placed and summed when the slot's turn comes again. */
typedef struct bulk_reading {
    const move_piece *piece; /* NULL: the slot is empty */
    uint64_t dataset_offset, bytes;
    uint64_t box_offset;
    unsigned char *to, *buffer; /* buffer: NULL where it was read in place; to: on a device */
} bulk_reading;

typedef struct bulk_reader {
    const move_transfer *transfer;
    bulk_reading slots[IO_SLOTS];
    dcp_error *err;
} bulk_reader;

static int place_part(bulk_reading *r, dcp_error *err) {
    const move_piece *p = r->piece;
    if (!p) return DCP_OK;
    r->piece = NULL;
    if (r->buffer && r->to) memcpy(r->to, r->buffer, r->bytes);
    move_piece_sum(p, r->dataset_offset, r->to ? r->to : r->buffer, r->bytes);
    return r->to ? DCP_OK : move_box_put(p, r->box_offset, r->buffer, r->bytes, err);
}

static int read_part(void *ctx, const move_fragment *part) {
    bulk_reader *r = ctx;
    const move_transfer *t = r->transfer;
    unsigned slot = io_queue_next(t->queue);
    int status = io_queue_status(t->queue, r->err);
    if (!status) status = place_part(&r->slots[slot], r->err);
    if (status) return status;
    const state_box *box = part->piece->box;
    unsigned char *to = box->data ? (unsigned char *)box->data + part->box_offset : NULL;
    const io_file *file = move_transfer_file(t, part->file_offset)->file;
    int in_place = to && (uintptr_t)to % file->memory_align == 0;
    unsigned char *buffer = in_place ? NULL : io_queue_buffer(t->queue, slot);
    move_transfer_start(t, slot, in_place ? to : buffer, part->bytes, part->file_offset);
    io_queue_send(t->queue);
    r->slots[slot] = (bulk_reading){
        part->piece, part->dataset_offset, part->bytes, part->box_offset, to, buffer};
    return DCP_OK;
}

static int read_parts(const move_transfer *t, dcp_error *err) {
    bulk_reader r = {.transfer = t, .err = err};
    int status = move_bulk_parts(t->pieces, t->n_pieces, read_part, &r);
    io_queue_drain(t->queue);
    if (!status) status = io_queue_status(t->queue, err);
    for (unsigned slot = 0; slot < IO_SLOTS && !status; slot++)
        status = place_part(&r.slots[slot], err);
    return status;
}

int move_bulk(const move_transfer *t, dcp_error *err) {
    return (t->direction == MOVE_TO_FILE ? write_parts : read_parts)(t, err);
}
