/* Whole pages of long runs, written by their holder: from the memory itself where its address suits
 * O_DIRECT, else through the queue's buffers. Requests end with the dataset's blocks, so each is
 * checksummed in one piece, while it is in flight. */
#include "core/fail.h"
#include "save/write.h"

static int write_part(io_queue *queue, const io_file *file, const piece *p, uint64_t file_offset,
                      uint64_t box_offset, uint64_t bytes, dcp_error *err) {
    unsigned slot = io_queue_next(queue);
    const unsigned char *data = piece_memory(p, box_offset);
    if (!data || (uintptr_t)data % file->memory_align) {
        unsigned char *buffer = io_queue_buffer(queue, slot);
        int status = piece_fetch(p, box_offset, bytes, buffer, err);
        if (status) return status;
        data = buffer;
    }
    io_queue_write(queue, slot, file, data, bytes, file_offset);
    piece_sum(p, file_offset - p->file_offset, data, bytes);
    return io_queue_status(queue, err);
}

static int write_run(io_queue *queue, const io_file *file, const piece *p, uint64_t run,
                     dcp_error *err) {
    uint64_t a, b, at, to;
    box_copy_run(&p->copy, run, &a, &b);
    piece_interior(p, run, &at, &to);
    while (at < to) {
        uint64_t block_end =
            p->file_offset + ((at - p->file_offset) / BLOCK_BYTES + 1) * BLOCK_BYTES;
        uint64_t end = block_end < to ? block_end : to;
        int status = write_part(queue, file, p, at, b + (at - p->file_offset - a), end - at, err);
        if (status) return status;
        at = end;
    }
    return DCP_OK;
}

int write_direct(io_queue *queue, const io_file *file, const piece *pieces, size_t n,
                 dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (pieces[i].direct)
            for (uint64_t run = 0; run < pieces[i].copy.runs && !status; run++)
                status = write_run(queue, file, &pieces[i], run, err);
    io_queue_drain(queue);
    return status ? status : io_queue_status(queue, err);
}
