/* Batch by batch into staging buffers, and from there to the disk in place. Batches are used in
 * turn. While some are being written, those behind them are being copied; with the last one sent,
 * all that is still on its way is waited for at once, and the memory on the device is free though
 * much is still to be written. */
#include "move/bulk_device.h"

#include <stdlib.h>

#include "core/fail.h"
#include "device/staging.h"
#include "io/queue.h"
#include "move/box_bytes.h"
#include "move/progress.h"
#include "move/transfer.h"

typedef struct device_part {
    move_fragment f;
    const unsigned char *memory; /* once it was sent */
} device_part;

typedef struct device_writer {
    const move_transfer *transfer;
    staging *staging;
    io_queue *queue;
    device_part *parts;
    size_t n, sent, written; /* parts */
    size_t batches_sent, batches_written;
    size_t ends[STAGING_MOST]; /* a batch's: the first part after it */
    unsigned io_slots[STAGING_MOST];
    int released;
    dcp_error *err;
} device_writer;

static int count_part(void *ctx, const move_fragment *f) {
    *(size_t *)ctx += f->piece->device != NULL;
    return DCP_OK;
}

static int list_part(void *ctx, const move_fragment *f) {
    device_writer *w = ctx;
    if (f->piece->device) w->parts[w->n++] = (device_part){.f = *f};
    return DCP_OK;
}

/* Batches whose memory the queue may still read. The queue's own turns see to it that it is not
 * more than IO_SLOTS; fewer are waited for. */
static unsigned in_writing(const staging *s) { return s->n / 2 < IO_SLOTS ? s->n / 2 : IO_SLOTS; }

/* Parts are whole pages, so each begins on a page in its batch. A part has at most a block, which
 * fits into an empty batch. */
static int send_batch(device_writer *w) {
    staging *s = w->staging;
    size_t number = w->batches_sent;
    staging_batch *b = &s->batches[number % s->n];
    if (number >= s->n && in_writing(s) < IO_SLOTS)
        io_queue_wait(w->queue, w->io_slots[number % s->n]);
    device_staging_clear(b);
    while (w->sent < w->n) {
        device_part *p = &w->parts[w->sent];
        uint64_t taken;
        if (p->f.bytes > b->room - b->used || b->n == b->most) break;
        p->memory = device_staging_add(b, p->f.piece->box, p->f.piece->row->tensor.path,
                                       p->f.box_offset, p->f.bytes, &taken);
        w->sent++;
    }
    w->ends[number % s->n] = w->sent;
    w->batches_sent++;
    return device_staging_send(s, b, STAGING_TO_HOST, w->err);
}

static int send_ahead(device_writer *w) {
    const staging *s = w->staging;
    int status = DCP_OK;
    size_t busy = in_writing(s), done = w->batches_written > busy ? w->batches_written - busy : 0;
    while (!status && w->sent < w->n && w->batches_sent < done + s->n) status = send_batch(w);
    return status;
}

/* Once all is on its way: waits for it, and frees the memory on the device. */
static int release_memory(device_writer *w) {
    staging *s = w->staging;
    int status = DCP_OK;
    if (w->released || w->sent < w->n) return DCP_OK;
    for (size_t i = w->batches_written; i < w->batches_sent && !status; i++)
        status = device_staging_wait(s, &s->batches[i % s->n], w->err);
    w->released = 1;
    if (!status && w->transfer->is_last) move_progress_release(w->transfer->progress);
    return status;
}

static void write_device_part(const device_writer *w, unsigned slot, const device_part *p) {
    io_queue_write(w->queue, slot, w->transfer->files->file, p->memory, p->f.bytes,
                   p->f.file_offset);
    move_piece_sum(p->f.piece, p->f.dataset_offset, p->memory, p->f.bytes);
    move_progress_written(w->transfer->progress, p->f.bytes);
}

static int write_batch(device_writer *w) {
    staging *s = w->staging;
    size_t number = w->batches_written % s->n;
    int status = device_staging_wait(s, &s->batches[number], w->err);
    if (status) return status;
    w->io_slots[number] = io_queue_next(w->queue);
    for (; w->written < w->ends[number]; w->written++)
        write_device_part(w, w->io_slots[number], &w->parts[w->written]);
    io_queue_send(w->queue);
    w->batches_written++;
    return io_queue_status(w->queue, w->err);
}

static int write_parts(device_writer *w) {
    int status = DCP_OK;
    device_staging_cut(w->staging, w->staging->slots);
    while (w->written < w->n && !status) {
        status = send_ahead(w);
        if (!status) status = release_memory(w);
        if (!status) status = write_batch(w);
    }
    io_queue_drain(w->queue);
    if (status) device_staging_cut(w->staging, w->staging->slots); /* nothing is copied any more */
    return status ? status : io_queue_status(w->queue, w->err);
}

static size_t count_parts(const move_transfer *t) {
    size_t parts = 0;
    move_bulk_parts(t->pieces, t->n_pieces, count_part, &parts);
    return parts;
}

int move_bulk_is_on_device(const move_transfer *t) {
    return t->device->staging && count_parts(t) > 0;
}

int move_bulk_from_device(const move_transfer *t, dcp_error *err) {
    device_writer w = {.transfer = t, .staging = t->device->staging, .queue = t->queue, .err = err};
    if (!w.staging) return DCP_OK;
    size_t parts = count_parts(t);
    w.parts = malloc((parts + 1) * sizeof *w.parts);
    if (!w.parts) return core_fail_memory(err, parts * sizeof *w.parts);
    move_bulk_parts(t->pieces, t->n_pieces, list_part, &w);
    int status = write_parts(&w);
    free(w.parts);
    return status;
}
