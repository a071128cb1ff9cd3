/* Whole pages of long runs, read by their holder: straight into memory where its address suits
 * O_DIRECT, else through the queue's buffers. What a slot brought is placed and summed when the
 * slot's turn comes again. */
#include <string.h>

#include "core/fail.h"
#include "load/place.h"
#include "load/transfer.h"

typedef struct job {
    const piece *piece; /* NULL: the slot is empty */
    uint64_t dataset_offset, bytes;
    uint64_t box_offset;
    unsigned char *to, *buffer; /* buffer: NULL where it was read in place; to: on a device */
} job;

step_file *load_file(const dcp_checkpoint *ckpt, uint64_t address) {
    size_t low = 0, high = ckpt->n_files;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (ckpt->by_address[middle]->base <= address)
            low = middle;
        else
            high = middle;
    }
    return ckpt->by_address[low];
}

void load_read(dcp_checkpoint *ckpt, io_queue *queue, unsigned slot, void *buffer, uint64_t bytes,
               uint64_t address) {
    step_file *file = load_file(ckpt, address);
    io_queue_read(queue, slot, &file->file, buffer, bytes, address - file->base);
}

static int finish(job *j, dcp_error *err) {
    const piece *p = j->piece;
    if (!p) return DCP_OK;
    j->piece = NULL;
    if (j->buffer && j->to) memcpy(j->to, j->buffer, j->bytes);
    piece_sum(p, j->dataset_offset, j->to ? j->to : j->buffer, j->bytes);
    return j->to ? DCP_OK : place(p, j->box_offset, j->buffer, j->bytes, err);
}

typedef struct reader {
    dcp_checkpoint *ckpt;
    io_queue *queue;
    job jobs[IO_SLOTS];
    dcp_error *err;
} reader;

static int read_part(void *ctx, const fragment *part) {
    reader *r = ctx;
    unsigned slot = io_queue_next(r->queue);
    int status = io_queue_status(r->queue, r->err);
    if (status) return status;
    status = finish(&r->jobs[slot], r->err);
    if (status) return status;
    const state_box *box = part->piece->box;
    unsigned char *to = box->data ? (unsigned char *)box->data + part->box_offset : NULL;
    const io_file *file = &load_file(r->ckpt, part->file_offset)->file;
    int in_place = to && (uintptr_t)to % file->memory_align == 0;
    unsigned char *buffer = in_place ? NULL : io_queue_buffer(r->queue, slot);
    load_read(r->ckpt, r->queue, slot, in_place ? to : buffer, part->bytes, part->file_offset);
    io_queue_send(r->queue);
    r->jobs[slot] =
        (job){part->piece, part->dataset_offset, part->bytes, part->box_offset, to, buffer};
    return DCP_OK;
}

int load_direct(dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                dcp_error *err) {
    reader r = {.ckpt = ckpt, .queue = queue, .err = err};
    int status = piece_parts(pieces, n, read_part, &r);
    io_queue_drain(queue);
    if (!status) status = io_queue_status(queue, err);
    for (unsigned slot = 0; slot < IO_SLOTS && !status; slot++) status = finish(&r.jobs[slot], err);
    return status;
}
