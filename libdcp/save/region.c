/* Putting regions together, whoever carries. */
#include "save/region.h"

void region_write(const region *own, io_queue *queue, unsigned slot, const io_file *file) {
    for (size_t page = 0; page < REGION_PAGES;) {
        if (!own->touched[page]) {
            page++;
            continue;
        }
        size_t first = page;
        while (page < REGION_PAGES && own->touched[page]) page++;
        io_queue_write(queue, slot, file, own->buffer + first * PAGE_BYTES,
                       (page - first) * PAGE_BYTES, own->start + first * PAGE_BYTES);
    }
    io_queue_send(queue);
}

void fragments_pack(fragments *f, const fragment *part, unsigned char *to) {
    int status =
        piece_fetch(part->piece, part->box_offset, part->bytes, to, f->status ? NULL : &f->error);
    if (status && !f->status) f->status = status;
    if (!status) piece_sum(part->piece, part->dataset_offset, to, part->bytes);
    if (part->piece->box) save_progress_written(f->progress, part->bytes);
}

int write_fragments(dcp_comm *comm, io_queue *queue, const io_file *file, uint64_t file_bytes,
                    const piece *pieces, size_t n, save_progress *progress, dcp_error *err) {
    fragments f = {.comm = comm,
                   .queue = queue,
                   .file = file,
                   .pieces = pieces,
                   .n = n,
                   .progress = progress,
                   .error = {.rank = -1}};
    int status = windows_find(comm, pieces, n, file_bytes, &f.windows, err);
    if (status) return status;
    status = comm->shared ? send_by_memory(&f, err) : send_by_messages(&f, err);
    if (!status && f.status) {
        status = f.status;
        if (err) *err = f.error;
    }
    io_queue_drain(queue);
    windows_free(&f.windows);
    return status;
}
