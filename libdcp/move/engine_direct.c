/* Bulk parts move directly between the box's memory and the disk if the memory's address suits
 * O_DIRECT, and otherwise through the queue's buffers. */
#include "move/engine_direct.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "core/system.h"
#include "device/staging.h"
#include "io/queue.h"
#include "move/carrier.h"
#include "move/engine.h"
#include "move/piece.h"
#include "move/transfer.h"

/* Writes boxes on a device. Their parts are copied in batches into staging buffers, from which they
 * are written to disk without another copy. Batches are used in turn: while some are being written,
 * the following ones are being copied. When the last batch has been sent, the writer waits for all
 * outstanding copies. Then the caller may use the device's memory again, although much remains to
 * be written. */
typedef struct device_part {
    move_fragment f;
    const unsigned char *memory; /* its address in a staging buffer; set when it is sent */
} device_part;

typedef struct device_writer {
    const move_transfer *transfer;
    staging *staging;
    io_queue *queue;
    device_part *parts;
    size_t n, sent, written; /* how many parts there are, were sent, and were written */
    size_t batches_sent, batches_written;
    size_t ends[STAGING_MOST]; /* for each batch, the first part after it */
    unsigned io_slots[STAGING_MOST];
    bool released;
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

/* Returns the maximum number of batches that are written to disk at the same time. Each of them
 * uses the next slot of the queue, so there are never more than IO_SLOTS. If fewer are allowed,
 * send_batch waits for a slot. */
static unsigned in_writing(const staging *s) { return s->n / 2 < IO_SLOTS ? s->n / 2 : IO_SLOTS; }

/* Fills the next batch with parts, and starts to copy it. Parts are whole pages, so each begins at
 * a page boundary in its batch. A part is at most one block, which fits into an empty batch. */
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

/* If all parts have been sent, waits for the copies, and reports that the device's memory is
 * free. */
static int release_memory(device_writer *w) {
    staging *s = w->staging;
    int status = DCP_OK;
    if (w->released || w->sent < w->n) return DCP_OK;
    for (size_t i = w->batches_written; i < w->batches_sent && !status; i++)
        status = device_staging_wait(s, &s->batches[i % s->n], w->err);
    w->released = true;
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
    w->io_slots[number] = io_queue_next_slot(w->queue);
    for (; w->written < w->ends[number]; w->written++)
        write_device_part(w, w->io_slots[number], &w->parts[w->written]);
    io_queue_send(w->queue);
    w->batches_written++;
    int stopped = move_progress_status(w->transfer->progress, w->err);
    return stopped ? stopped : io_queue_status(w->queue, w->err);
}

static int write_batches(device_writer *w) {
    int status = DCP_OK;
    device_staging_cut(w->staging, w->staging->slots);
    while (w->written < w->n && !status) {
        status = send_ahead(w);
        if (!status) status = release_memory(w);
        if (!status) status = write_batch(w);
    }
    io_queue_drain(w->queue);
    /* waits for the copies under way */
    if (status) device_staging_cut(w->staging, w->staging->slots);
    return status ? status : io_queue_status(w->queue, w->err);
}

static size_t count_parts(const move_transfer *t) {
    size_t parts = 0;
    move_bulk_parts(t->pieces, t->n_pieces, count_part, &parts);
    return parts;
}

/* Returns true if the transfer, which is to a file, has parts on a device. */
static bool has_device_parts(const move_transfer *t) {
    return t->device->staging && count_parts(t) > 0;
}

/* Writes the parts on a device. Called after the fragments of their pieces have been read. Not
 * collective. */
static int write_device_parts(const move_transfer *t, dcp_error *err) {
    device_writer w = {.transfer = t, .staging = t->device->staging, .queue = t->queue, .err = err};
    if (!w.staging) return DCP_OK;
    size_t parts = count_parts(t);
    w.parts = core_array(parts + 1, sizeof *w.parts);
    if (!w.parts) return core_fail_memory(err, parts * sizeof *w.parts);
    move_bulk_parts(t->pieces, t->n_pieces, list_part, &w);
    int status = write_batches(&w);
    free(w.parts);
    return status;
}

/* Writes the boxes that are not on a device. Short parts share a slot and go to the disk together,
 * which costs fewer interrupts. Parts are checksummed while the previous slot is in flight. If
 * somebody waits for the memory and little is left, the rest is copied immediately and written from
 * the copy. */
typedef struct bulk_writer {
    const move_transfer *transfer;
    bool may_copy; /* the rest may be copied, to release the memory sooner */
    unsigned slot;
    uint64_t room;          /* bytes left in the slot; its buffer is filled from the start */
    uint64_t written, left; /* bytes of the written parts, and of the parts that are left */
    unsigned char *copy;    /* a copy of the rest; NULL: no copy */
    uint64_t copied_at;     /* value of `written` when the copy was made */
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
    move_progress *progress = c->writer->transfer->progress;
    const int status = move_box_fetch(part->piece, part->box_offset, part->bytes,
                                      c->to + (at - written), c->writer->err);
    move_progress_read(progress, part->bytes);
    return status ? status : move_progress_status(progress, c->writer->err);
}

/* Copies the rest and releases the memory. If there is no memory for a copy, the save continues
 * without one. */
static int copy_rest(bulk_writer *w) {
    const move_transfer *t = w->transfer;
    void *memory;
    w->may_copy = false;
    if (posix_memalign(&memory, PAGE_BYTES, w->left)) return DCP_OK;
    rest_copy c = {w, 0, memory};
    int status = move_bulk_parts(t->pieces, t->n_pieces, copy_part, &c);
    w->copy = memory;
    w->copied_at = w->written;
    io_queue_drain(t->queue); /* pending writes may still read the memory */
    if (!status) move_progress_release(t->progress);
    return status;
}

static int write_host_part(void *ctx, const move_fragment *part) {
    bulk_writer *w = ctx;
    const move_transfer *t = w->transfer;
    const move_piece *p = part->piece;
    io_file *file = t->files->file;
    int status = DCP_OK;
    if (p->device) return DCP_OK; /* written by write_device_parts */
    if (w->may_copy && move_progress_should_copy(t->progress, w->left)) status = copy_rest(w);
    if (status) return status;
    if (w->room < part->bytes) {
        w->slot = io_queue_next_slot(t->queue);
        w->room = IO_SLOT_BYTES;
    }
    const unsigned char *data = w->copy ? w->copy + (w->written - w->copied_at)
                                        : move_piece_memory(p, part->box_offset, part->bytes);
    const bool in_place = data && (uintptr_t)data % file->memory_align == 0;
    if (!in_place) {
        unsigned char *buffer = io_queue_buffer(t->queue, w->slot) + (IO_SLOT_BYTES - w->room);
        status = move_box_fetch_summed(p, part->dataset_offset, part->box_offset, part->bytes,
                                       buffer, w->err);
        if (status) return status;
        data = buffer;
    }
    w->room -= part->bytes;
    io_queue_write(t->queue, w->slot, file, data, part->bytes, part->file_offset);
    if (!w->room) io_queue_send(t->queue);
    if (in_place) move_piece_sum(p, part->dataset_offset, data, part->bytes);
    w->written += part->bytes;
    w->left -= part->bytes;
    move_progress_written(t->progress, part->bytes);
    status = move_progress_status(t->progress, w->err);
    return status ? status : io_queue_status(t->queue, w->err);
}

static int write_parts(const move_transfer *t, dcp_error *err) {
    bulk_writer w = {.transfer = t, .err = err};
    w.may_copy = t->is_last && !has_device_parts(t);
    move_bulk_parts(t->pieces, t->n_pieces, add_bytes, &w.left);
    int status = move_bulk_parts(t->pieces, t->n_pieces, write_host_part, &w);
    io_queue_drain(t->queue);
    free(w.copy);
    if (!status) status = io_queue_status(t->queue, err);
    return status ? status : write_device_parts(t, err);
}

/* A read in a slot. Its bytes are placed and summed when it is the slot's turn again. */
typedef struct bulk_reading {
    const move_piece *piece; /* NULL: the slot is empty */
    uint64_t dataset_offset, bytes;
    uint64_t box_offset;
    unsigned char *buffer; /* NULL: read in place */
} bulk_reading;

typedef struct bulk_reader {
    const move_transfer *transfer;
    bulk_reading slots[IO_SLOTS];
    dcp_error *err;
} bulk_reader;

static int place_part(const bulk_reader *reader, bulk_reading *r) {
    const move_piece *p = r->piece;
    if (!p) return DCP_OK;
    r->piece = NULL;
    int status = DCP_OK;
    if (r->buffer)
        status = move_box_put_summed(p, r->dataset_offset, r->box_offset, r->buffer, r->bytes,
                                     reader->err);
    else
        move_piece_sum_memory(p, r->dataset_offset, r->box_offset, r->bytes);
    move_progress_written(reader->transfer->progress, r->bytes);
    return status ? status : move_progress_status(reader->transfer->progress, reader->err);
}

static int read_part(void *ctx, const move_fragment *part) {
    bulk_reader *r = ctx;
    const move_transfer *t = r->transfer;
    unsigned slot = io_queue_next_slot(t->queue);
    int status = io_queue_status(t->queue, r->err);
    if (!status) status = place_part(r, &r->slots[slot]);
    if (status) return status;
    unsigned char *to =
        (unsigned char *)move_piece_memory(part->piece, part->box_offset, part->bytes);
    io_file *file = move_transfer_file(t, part->file_offset)->file;
    status = io_fd_acquire(file, r->err);
    if (status) return status;
    bool in_place = to && (uintptr_t)to % file->memory_align == 0;
    unsigned char *buffer = in_place ? NULL : io_queue_buffer(t->queue, slot);
    move_transfer_start(t, slot, in_place ? to : buffer, part->bytes, part->file_offset);
    io_queue_send(t->queue);
    io_fd_release(file);
    r->slots[slot] =
        (bulk_reading){part->piece, part->dataset_offset, part->bytes, part->box_offset, buffer};
    return DCP_OK;
}

static int read_parts(const move_transfer *t, dcp_error *err) {
    bulk_reader r = {.transfer = t, .err = err};
    int status = move_bulk_parts(t->pieces, t->n_pieces, read_part, &r);
    io_queue_drain(t->queue);
    if (!status) status = io_queue_status(t->queue, err);
    for (unsigned slot = 0; slot < IO_SLOTS && !status; slot++)
        status = place_part(&r, &r.slots[slot]);
    return status;
}

int move_bulk(const move_transfer *t, dcp_error *err) {
    return (t->direction == MOVE_TO_FILE ? write_parts : read_parts)(t, err);
}

/* Engine direct writes and reads whole pages by position, past the page cache.
 *
 * Each page is written by one rank and synced by its writer. That is correct on local file systems,
 * and on all network and parallel file systems whose clients cache no page that another node wrote,
 * or drop it in time. These include ext4, xfs, btrfs, tmpfs, overlayfs, NFS, Lustre, GPFS and
 * CephFS. So it is the default: the engine for all file systems that no other engine lists. */

/* With several hosts, only runs that contain whole domains are bulk. Then each MiB of the file has
 * one writer, and requests stay large even if many ranks hold short runs of a tensor. */
#define DOMAIN_BULK_BYTES (2 * IO_SLOT_BYTES)

/* Collective. */
static int choose_bulk(const move_transfer *t, dcp_error *err) {
    const comm_groups *hosts;
    if (t->skips_bulk || t->reader_ranges) return DCP_OK;
    int status = comm_hosts(t->comm, &hosts, err);
    if (status || hosts->n == 1) return status;
    for (size_t i = 0; i < t->n_pieces; i++) {
        move_piece *p = &t->pieces[i];
        p->bulk = p->bulk && p->copy->run_bytes >= DOMAIN_BULK_BYTES;
        if (p->page_bytes < IO_SLOT_BYTES) p->page_bytes = IO_SLOT_BYTES;
    }
    return DCP_OK;
}

/* Collective. */
static int begin_fragments(move_exchange *x, const move_transfer *t, dcp_error *err) {
    const int status = choose_bulk(t, err);
    return status ? status : move_exchange_open(x, t, err);
}

/* Not collective. Called after move_exchange_run, which returned `status`. */
static int end_fragments(move_exchange *x, const move_transfer *t, int status, dcp_error *err) {
    if (!status && x->status) {
        status = x->status;
        if (err) *err = x->error;
    }
    io_queue_drain(t->queue);
    return status;
}

static void report_wait(void *progress, double begin, double end) {
    move_progress_phase(progress, DCP_PHASE_WRITE, begin, end);
}

static int move_directly(move_transfer *t, dcp_error *err) {
    io_queue *queue = t->queue;
    double start = core_clock_now(), waited_before = io_queue_waited(queue);
    if (t->progress && t->progress->on_phase) io_queue_on_wait(queue, report_wait, t->progress);
    move_exchange x = {0};
    int status = begin_fragments(&x, t, err);
    if (!status) status = end_fragments(&x, t, move_exchange_run(&x, err), err);
    const bool over = x.is_over; /* some rank failed, so the rest is skipped */
    move_exchange_close(&x);
    double middle = core_clock_now(), waited = io_queue_waited(queue) - waited_before;
    if (!status && !over) status = move_sums(t->replicas, t->n_replicas, t->progress, err);
    if (!status && !over && !t->others_are_summed)
        status = move_sums_of_others(t->pieces, t->n_pieces, t->progress, err);
    if (!status && !over) status = t->skips_bulk ? io_queue_status(queue, err) : move_bulk(t, err);
    double end = core_clock_now(), waited_too = io_queue_waited(queue) - waited_before - waited;
    io_queue_on_wait(queue, NULL, NULL);
    t->report->gather_s +=
        move_progress_phase(t->progress, DCP_PHASE_GATHER, start, middle) - waited;
    t->report->copy_s += move_progress_phase(t->progress, DCP_PHASE_COPY, middle, end) - waited_too;
    t->report->write_s += waited + waited_too;
    return move_transfer_finish(t, status, err);
}

static int open_to_write(const char *path, io_file *out, dcp_error *err) {
    return io_open(path, 1, out, err);
}

const move_engine move_engine_direct = {
    .engine = DCP_ENGINE_DIRECT,
    .name = "direct",
    .is_by_position = true,
    .is_for_any_thread = true,
    .open = open_to_write,
    .to_file = move_directly,
    .from_files = move_directly,
};
