/* Addresses of files, and the end of a move. */
#include "move/transfer.h"

#include "comm/comm.h"
#include "core/search.h"
#include "io/queue.h"
#include "move/box_bytes.h"
#include "move/progress.h"

const move_file *move_transfer_file(const move_transfer *t, uint64_t address) {
    return &t->files[core_first_from(&t->files->base, t->n_files, sizeof *t->files, address + 1) -
                     1];
}

void move_transfer_start(const move_transfer *t, unsigned slot, unsigned char *buffer,
                         uint64_t bytes, uint64_t address) {
    const move_file *file = move_transfer_file(t, address);
    if (t->direction == MOVE_TO_FILE)
        io_queue_write(t->queue, slot, file->file, buffer, bytes, address - file->base);
    else
        io_queue_read(t->queue, slot, file->file, buffer, bytes, address - file->base);
}

int move_transfer_finish(const move_transfer *t, int status, dcp_error *err) {
    if (!status && t->failure) {
        status = t->failure->status;
        if (err) *err = *t->failure;
    }
    if (t->direction == MOVE_FROM_FILE) {
        if (!status) status = move_device_flush(t->device, err);
    } else if (t->is_last) {
        move_progress_release(t->progress);
    }
    if (!status) status = move_progress_status(t->progress, err);
    if (!status && t->on_summed) t->on_summed(t->ctx);
    if (t->is_agreed_later) return status;
    return t->sums ? comm_agree_xor(t->comm, status, t->sums, t->n_sums, err)
                   : comm_agree(t->comm, status, err);
}
