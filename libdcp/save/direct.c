/* Whole pages of long runs, written by their holder: from the memory itself where its address suits
 * O_DIRECT, else through the queue's buffers. A part is checksummed while it is in flight. */
#include "core/fail.h"
#include "save/write.h"

typedef struct writer {
    io_queue *queue;
    const io_file *file;
    dcp_error *err;
} writer;

static int write_part(void *ctx, const fragment *part) {
    writer *w = ctx;
    const piece *p = part->piece;
    unsigned slot = io_queue_next(w->queue);
    const unsigned char *data = piece_memory(p, part->box_offset);
    if (!data || (uintptr_t)data % w->file->memory_align) {
        unsigned char *buffer = io_queue_buffer(w->queue, slot);
        int status = piece_fetch(p, part->box_offset, part->bytes, buffer, w->err);
        if (status) return status;
        data = buffer;
    }
    io_queue_write(w->queue, slot, w->file, data, part->bytes, part->file_offset);
    piece_sum(p, part->dataset_offset, data, part->bytes);
    return io_queue_status(w->queue, w->err);
}

int write_direct(io_queue *queue, const io_file *file, const piece *pieces, size_t n,
                 dcp_error *err) {
    writer w = {queue, file, err};
    int status = piece_parts(pieces, n, write_part, &w);
    io_queue_drain(queue);
    return status ? status : io_queue_status(queue, err);
}
