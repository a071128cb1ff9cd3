/* Progress, release and cancellation. */
#include "move/transfer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "device/staging.h"
#include "io/queue.h"
#include "move/piece.h"

#define REPORT_BYTES ((uint64_t)4 << 20)
/* For progress, a part counts as at least this many bytes. If memory is mapped from a file, the
 * kernel also reads the pages around a small part, and the caller can release them only when
 * progress is reported. */
#define PART_BYTES ((uint64_t)256 << 10)

void move_progress_read(move_progress *progress, uint64_t bytes) {
    progress->unreported += bytes < PART_BYTES ? PART_BYTES : bytes;
    if (progress->unreported < REPORT_BYTES && progress->done < progress->total) return;
    progress->unreported = 0;
    if (progress->on_progress)
        progress->on_progress(progress->progress_ctx, progress->done, progress->total);
    comm_stop_poll(&progress->stop, NULL);
}

int move_progress_status(const move_progress *progress, dcp_error *err) {
    return progress ? comm_stop_status(&progress->stop, err) : DCP_OK;
}

int move_progress_poll(move_progress *progress, dcp_error *err) {
    return progress ? comm_stop_poll(&progress->stop, err) : DCP_OK;
}

void move_progress_written(move_progress *progress, uint64_t bytes) {
    progress->done += bytes;
    move_progress_read(progress, bytes);
}

double move_progress_phase(const move_progress *progress, dcp_phase phase, double begin,
                           double end) {
    if (progress && progress->on_phase) progress->on_phase(progress->phase_ctx, phase, begin, end);
    return end - begin;
}

void move_progress_release(const move_progress *progress) {
    if (progress->released) progress->released(progress->ctx);
}

bool move_progress_should_copy(const move_progress *progress, uint64_t left) {
    return left <= progress->staging_bytes && progress->is_awaited &&
           progress->is_awaited(progress->ctx);
}

/* Addresses of files, and the end of a move. */

const move_file *move_transfer_file(const move_transfer *t, uint64_t address) {
    return &t->files[core_lower_bound(&t->files->base, t->n_files, sizeof *t->files, address + 1) -
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

/* Bytes in memory are summed where they lie. */

#define SUM_BYTES ((uint64_t)4 << 20)
#define TOGETHER_BYTES (64u << 10) /* the shortest runs that a device sums */

/* Returns true if the device sums the bytes itself; short runs would require many calls. */
static bool is_summed_there(const move_piece *p) {
    return p->device && (!p->global || p->global->copy.run_bytes >= TOGETHER_BYTES);
}

static int sum_there(const move_piece *p, uint64_t offset, uint64_t bytes, dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t end = offset + bytes, part; offset < end && !status; offset += part) {
        uint64_t raw = 0;
        part = move_piece_in_block(p, offset, end - offset);
        status = device_staging_checksum(p->device->staging, p->box, p->row->tensor.path, offset,
                                         part, &raw, err);
        if (!status) move_piece_add(p, offset, part, raw);
    }
    return status;
}

static int sum_part(const move_piece *p, uint64_t offset, uint64_t bytes, unsigned char **buffer,
                    dcp_error *err) {
    if (is_summed_there(p)) return sum_there(p, offset, bytes, err);
    if (p->box->data) {
        move_piece_sum_memory(p, offset, offset, bytes);
        return DCP_OK;
    }
    if (!*buffer && !(*buffer = malloc(SUM_BYTES))) return core_fail_memory(err, SUM_BYTES);
    int status = move_box_fetch(p, offset, bytes, *buffer, err);
    if (!status) move_piece_sum(p, offset, *buffer, bytes);
    return status;
}

typedef struct summing {
    unsigned char *buffer; /* SUM_BYTES; NULL before its first use */
    move_progress *progress;
    dcp_error *err;
} summing;

/* Adds bytes [offset, offset + bytes) of p's box to the checksums. The box must be the whole
 * dataset. */
static int sum_range(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes) {
    summing *s = ctx;
    int status = DCP_OK;
    for (uint64_t at = 0, part; at < bytes && !status; at += part) {
        part = core_min_u64(SUM_BYTES, bytes - at);
        status = sum_part(p, offset + at, part, &s->buffer, s->err);
        if (s->progress && !status) move_progress_read(s->progress, part);
        if (!status) status = move_progress_status(s->progress, s->err);
    }
    return status;
}

int move_sums(const move_piece *pieces, size_t n, move_progress *progress, dcp_error *err) {
    summing s = {NULL, progress, err};
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = sum_range(&s, &pieces[i], 0, pieces[i].bytes);
    free(s.buffer);
    return status;
}

/* Does the same for the box alone, as if it were a dataset of its own. */
static int sum_box_range(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes) {
    const move_piece box = {.bytes = p->copy->runs * p->copy->run_bytes,
                            .row = p->row,
                            .box = p->box,
                            .sums = p->own,
                            .device = p->device};
    return sum_range(ctx, &box, offset, bytes);
}

int move_sums_of_others(const move_piece *pieces, size_t n, move_progress *progress,
                        dcp_error *err) {
    summing s = {NULL, progress, err};
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (pieces[i].holders && pieces[i].own)
            status = move_piece_walk_others(&pieces[i], sum_box_range, &s);
    free(s.buffer);
    return status;
}
