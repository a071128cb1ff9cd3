/* Whole pages of long runs, read by their holder: straight into memory where its address suits
 * O_DIRECT, else through the queue's buffers. What a slot brought is placed and summed when the
 * slot's turn comes again. */
#include <string.h>

#include "core/fail.h"
#include "load/transfer.h"

typedef struct job {
    const piece *piece; /* NULL: the slot is empty */
    uint64_t dataset_offset, bytes;
    unsigned char *to, *buffer; /* buffer: NULL where it was read in place */
} job;

ckpt_file *load_file(const dcp_checkpoint *ckpt, uint64_t address) {
    size_t low = 0, high = ckpt->n_files;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (ckpt->files[middle].base <= address)
            low = middle;
        else
            high = middle;
    }
    return &ckpt->files[low];
}

void load_read(dcp_checkpoint *ckpt, io_queue *queue, unsigned slot, void *buffer, uint64_t bytes,
               uint64_t address) {
    ckpt_file *file = load_file(ckpt, address);
    io_queue_read(queue, slot, &file->file, buffer, bytes, address - file->base);
}

static void finish(job *j) {
    if (!j->piece) return;
    if (j->buffer) memcpy(j->to, j->buffer, j->bytes);
    piece_sum(j->piece, j->dataset_offset, j->to, j->bytes);
    j->piece = NULL;
}

static int read_part(dcp_checkpoint *ckpt, io_queue *queue, job *jobs, const piece *p,
                     uint64_t address, uint64_t box_offset, uint64_t bytes, dcp_error *err) {
    unsigned slot = io_queue_next(queue);
    int status = io_queue_status(queue, err);
    if (status) return status;
    finish(&jobs[slot]);
    unsigned char *to = (unsigned char *)p->box->data + box_offset;
    int in_place = (uintptr_t)to % load_file(ckpt, address)->file.memory_align == 0;
    unsigned char *buffer = in_place ? NULL : io_queue_buffer(queue, slot);
    load_read(ckpt, queue, slot, in_place ? to : buffer, bytes, address);
    jobs[slot] = (job){p, address - p->file_offset, bytes, to, buffer};
    return DCP_OK;
}

static int read_run(dcp_checkpoint *ckpt, io_queue *queue, job *jobs, const piece *p, uint64_t run,
                    dcp_error *err) {
    uint64_t a, b, at, to;
    box_copy_run(&p->copy, run, &a, &b);
    piece_interior(p, run, &at, &to);
    while (at < to) {
        uint64_t block_end =
            p->file_offset + ((at - p->file_offset) / BLOCK_BYTES + 1) * BLOCK_BYTES;
        uint64_t end = block_end < to ? block_end : to;
        int status =
            read_part(ckpt, queue, jobs, p, at, b + (at - p->file_offset - a), end - at, err);
        if (status) return status;
        at = end;
    }
    return DCP_OK;
}

int load_direct(dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                dcp_error *err) {
    job jobs[IO_SLOTS] = {{0}};
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (pieces[i].direct)
            for (uint64_t run = 0; run < pieces[i].copy.runs && !status; run++)
                status = read_run(ckpt, queue, jobs, &pieces[i], run, err);
    io_queue_drain(queue);
    if (!status) status = io_queue_status(queue, err);
    for (unsigned slot = 0; slot < IO_SLOTS && !status; slot++) finish(&jobs[slot]);
    return status;
}
