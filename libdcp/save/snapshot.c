/* Whole pages of long runs on a device: batch by batch into page-locked memory, and from there to
 * the disk in place. Batches are used in turn. While some are being written, those behind them are
 * being copied; with the last one sent, all that is still on its way is waited for at once, and the
 * memory on the device is free though much is still to be written. */
#include "save/snapshot.h"

#include <stdlib.h>

#include "copy/staged.h"
#include "core/fail.h"
#include "save/context.h"

int snapshot_open(dcp_store *store, const dcp_state *state, uint64_t bytes, dcp_error *err) {
    uint64_t slot = STAGING_SLOT_BYTES;
    if (!state->device) return DCP_OK;
    if (bytes > state->device_bytes) bytes = (state->device_bytes + slot - 1) / slot * slot;
    unsigned slots = (unsigned)(bytes / slot < STAGING_MOST ? bytes / slot : STAGING_MOST);
    save_context *kept = save_context_of(store);
    staging *s = kept->staging;
    if (s && (s->device != state->device || s->slots < slots)) {
        device_staging_close(s);
        kept->staging = s = NULL;
    }
    return s ? DCP_OK : device_staging_open(state->device, bytes, &kept->staging, err);
}

int snapshot_prepare(dcp_store *store, const dcp_state *state, uint64_t bytes, dcp_error *err) {
    int status = snapshot_open(store, state, bytes, err);
    return status || !state->device ? status
                                    : device_staging_follow(save_context_of(store)->staging, err);
}

void snapshot_begin(image *im) {
    for (size_t i = 0; i < im->n_pieces; i++) {
        piece *p = &im->pieces[i];
        if (!p->staging) continue;
        im->staged = 1;
        if (im->engine == DCP_ENGINE_MPIO) p->direct = 0; /* all of it is fetched */
    }
    if (im->staged) staged_begin(save_context_of(im->store)->staging, im->pieces, im->n_pieces);
}

/* Pieces that are written by this rank itself, apart: those on the device and the others. */
static size_t take_pieces(image *im, piece *out) {
    size_t n = 0;
    for (size_t i = 0; i < im->n_pieces; i++) {
        piece *p = &im->pieces[i];
        if (!p->staging || !p->direct) continue;
        out[n++] = *p;
        p->direct = 0; /* its fragments have gone: nothing of it is left to do there */
    }
    return n;
}

typedef struct part {
    fragment f;
    const unsigned char *memory; /* once it was sent */
} part;

typedef struct snapshot {
    staging *staging;
    io_queue *queue;
    const image *im;
    part *parts;
    size_t n, sent, written; /* parts */
    size_t batches_sent, batches_written;
    size_t ends[STAGING_MOST]; /* a batch's: the first part after it */
    unsigned io_slots[STAGING_MOST];
    int released;
    dcp_error *err;
} snapshot;

static int count_part(void *ctx, const fragment *f) {
    (void)f;
    ++*(size_t *)ctx;
    return DCP_OK;
}

static int list_part(void *ctx, const fragment *f) {
    snapshot *w = ctx;
    w->parts[w->n++] = (part){.f = *f};
    return DCP_OK;
}

/* Batches whose memory the queue may still read. The queue's own turns see to it that it is not
 * more than IO_SLOTS; fewer are waited for. */
static unsigned in_writing(const staging *s) { return s->n / 2 < IO_SLOTS ? s->n / 2 : IO_SLOTS; }

/* Parts are whole pages, so each begins on a page in its batch. A part has at most a block, which
 * fits into an empty batch. */
static int send_batch(snapshot *w) {
    staging *s = w->staging;
    size_t number = w->batches_sent;
    staging_batch *b = &s->batches[number % s->n];
    if (number >= s->n && in_writing(s) < IO_SLOTS)
        io_queue_wait(w->queue, w->io_slots[number % s->n]);
    device_staging_clear(b);
    while (w->sent < w->n) {
        part *p = &w->parts[w->sent];
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

static int send_ahead(snapshot *w) {
    const staging *s = w->staging;
    int status = DCP_OK;
    size_t busy = in_writing(s), done = w->batches_written > busy ? w->batches_written - busy : 0;
    while (!status && w->sent < w->n && w->batches_sent < done + s->n) status = send_batch(w);
    return status;
}

/* Once all is on its way: waits for it, and frees the memory on the device. */
static int release(snapshot *w) {
    staging *s = w->staging;
    int status = DCP_OK;
    if (w->released || w->sent < w->n) return DCP_OK;
    for (size_t i = w->batches_written; i < w->batches_sent && !status; i++)
        status = device_staging_wait(s, &s->batches[i % s->n], w->err);
    w->released = 1;
    if (!status && w->im->is_last) save_progress_release(w->im->progress);
    return status;
}

static void write_part(const snapshot *w, unsigned slot, const part *p) {
    io_queue_write(w->queue, slot, &w->im->file, p->memory, p->f.bytes, p->f.file_offset);
    piece_sum(p->f.piece, p->f.dataset_offset, p->memory, p->f.bytes);
    save_progress_written(w->im->progress, p->f.bytes);
}

static int write_batch(snapshot *w) {
    staging *s = w->staging;
    size_t number = w->batches_written % s->n;
    int status = device_staging_wait(s, &s->batches[number], w->err);
    if (status) return status;
    w->io_slots[number] = io_queue_next(w->queue);
    for (; w->written < w->ends[number]; w->written++)
        write_part(w, w->io_slots[number], &w->parts[w->written]);
    io_queue_send(w->queue);
    w->batches_written++;
    return io_queue_status(w->queue, w->err);
}

static int write_parts(snapshot *w) {
    int status = DCP_OK;
    device_staging_cut(w->staging, w->staging->slots);
    while (w->written < w->n && !status) {
        status = send_ahead(w);
        if (!status) status = release(w);
        if (!status) status = write_batch(w);
    }
    io_queue_drain(w->queue);
    if (status) device_staging_cut(w->staging, w->staging->slots); /* nothing is copied any more */
    return status ? status : io_queue_status(w->queue, w->err);
}

int snapshot_write(image *im, io_queue *queue, dcp_error *err) {
    snapshot w = {
        .staging = save_context_of(im->store)->staging, .queue = queue, .im = im, .err = err};
    piece *pieces = malloc((im->n_pieces + 1) * sizeof *pieces);
    if (!pieces) return core_fail_memory(err, im->n_pieces * sizeof *pieces);
    size_t n = take_pieces(im, pieces), parts = 0;
    piece_parts(pieces, n, count_part, &parts);
    w.parts = malloc((parts + 1) * sizeof *w.parts);
    int status = w.parts ? DCP_OK : core_fail_memory(err, parts * sizeof *w.parts);
    if (!status)
        status = write_direct(queue, &im->file, im->pieces, im->n_pieces, im->progress,
                              im->is_last && !n, err);
    if (!status) {
        piece_parts(pieces, n, list_part, &w);
        status = write_parts(&w);
    }
    free(w.parts);
    free(pieces);
    return status;
}
