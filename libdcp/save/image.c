/* Writing one file. Each stage ends with an agreement, so all ranks of the image see one status. */
#include "save/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "save/context.h"
#include "save/reuse.h"
#include "save/snapshot.h"
#include "store/recycle.h"

/* The metadata is a piece of rank 0 like any other, without a checksum of blocks. */
static void add_metadata(image *im) {
    for (size_t i = 0; i < im->layout->skeleton.n_runs; i++) {
        const skeleton_run *run = &im->layout->skeleton.runs[i];
        const box_copy whole = {.run_bytes = run->bytes, .runs = 1};
        piece *p = &im->pieces[im->n_pieces++];
        *p = (piece){.file_offset = run->offset, .bytes = run->bytes, .raw = run->data};
        piece_set_copy(p, &whole);
        p->direct = 0;
    }
}

int image_prepare(image *im, dcp_comm *comm, const save_file *layout, const char *folder,
                  const char *name, size_t n_pieces, save_progress *progress, dcp_error *err) {
    *im = (image){.comm = comm, .layout = layout, .file.fd = -1, .progress = progress};
    if (snprintf(im->path, sizeof im->path, "%s/%s", folder, name) >= (int)sizeof im->path)
        return core_fail(err, DCP_ERR_ARG, "path of %s is too long", folder);
    size_t total = n_pieces + layout->skeleton.n_runs;
    im->pieces = calloc(total + 1, sizeof *im->pieces);
    im->sums = calloc(layout->blocks + 1, sizeof *im->sums);
    if (!im->pieces || !im->sums)
        return core_fail_memory(err, total * sizeof *im->pieces + layout->blocks * 8);
    add_metadata(im);
    return DCP_OK;
}

piece *image_add(image *im, size_t row, const state_box *box, const box_copy *copy) {
    const index_row *r = &im->layout->rows[row];
    piece *p = &im->pieces[im->n_pieces++];
    *p = (piece){.file_offset = r->offset,
                 .bytes = r->bytes,
                 .row = r,
                 .box = box,
                 .staging = box->device ? save_context_of(im->store)->staging : NULL,
                 .sums = im->sums + r->first_block};
    piece_set_copy(p, copy);
    if (im->mover && copy->run_bytes >= MOVED_BYTES) p->direct = p->file_offset % PAGE_BYTES == 0;
    return p;
}

/* Which bytes are written: those of pages that anything lies on. */
static uint64_t pages_of(const save_file *file) {
    const skeleton *s = &file->skeleton;
    const uint64_t sizes[] = {s->file_bytes,   s->index.offset, s->index.bytes, s->blocks.offset,
                              s->blocks.bytes, s->meta.offset,  s->meta.bytes};
    uint64_t raw = core_crc64_raw(~0ULL, sizes, sizeof sizes);
    for (size_t i = 0; i < s->n_runs; i++)
        raw = core_crc64_raw(raw, (uint64_t[]){s->runs[i].offset, s->runs[i].bytes}, 16);
    for (size_t i = 0; i < file->n; i++)
        raw = core_crc64_raw(raw, (uint64_t[]){file->rows[i].offset, file->rows[i].bytes}, 16);
    return raw;
}

void image_take_spare(image *im) {
    if (im->comm->rank || im->engine == DCP_ENGINE_MPIO || !im->reuse->now->refused) return;
    im->stands = store_recycle_take(im->store, strrchr(im->path, '/') + 1, pages_of(im->layout), im->path);
}

void image_note_spare(const image *im, uint64_t step) {
    if (!im->comm->rank && im->engine != DCP_ENGINE_MPIO)
        store_recycle_note(im->store, step, im->file.fd, pages_of(im->layout));
}

static int create(image *im, dcp_error *err) {
    int status = DCP_OK;
    uint64_t bytes = reuse_may_share(im) ? 0 : im->layout->skeleton.file_bytes;
    if (im->comm->rank == 0 && !im->stands) status = io_create(im->path, bytes, err);
    return comm_agree(im->comm, status, err);
}

/* Made once a store: 16 MiB of fresh memory a save would cost more than the checksums do. */
static int ready_queue(const image *im, dcp_error *err) {
    save_context *kept = save_context_of(im->store);
    if (!kept->queue) return io_queue_create(&kept->queue, err);
    io_queue_rewind(kept->queue);
    return DCP_OK;
}

static void tell_wait(void *progress, double begin, double end) {
    save_progress_phase(progress, DCP_PHASE_WRITE, begin, end);
}

static int move_data(image *im, io_queue *queue, dcp_report *report, dcp_error *err) {
    double start = core_clock_now(), waited_before = io_queue_waited(queue);
    if (im->progress->on_phase) io_queue_tell(queue, tell_wait, im->progress);
    int status = write_fragments(im->comm, queue, &im->file, im->layout->skeleton.file_bytes,
                                 im->pieces, im->n_pieces, im->progress, err);
    double middle = core_clock_now(), waited = io_queue_waited(queue) - waited_before;
    if (!status && im->mover)
        status = io_queue_status(queue, err);
    else if (!status && im->staged)
        status = snapshot_write(im, queue, err);
    else if (!status)
        status = write_direct(queue, &im->file, im->pieces, im->n_pieces, im->progress, im->is_last,
                              err);
    double end = core_clock_now(), waited_too = io_queue_waited(queue) - waited_before - waited;
    io_queue_tell(queue, NULL, NULL);
    report->gather_s += save_progress_phase(im->progress, DCP_PHASE_GATHER, start, middle) - waited;
    report->copy_s += save_progress_phase(im->progress, DCP_PHASE_COPY, middle, end) - waited_too;
    report->write_s += waited + waited_too;
    return status;
}

static int write_by_position(image *im, dcp_report *report, dcp_error *err) {
    int status = comm_agree(im->comm, io_open(im->path, 1, &im->file, err), err);
    double start = core_clock_now();
    if (!status && reuse_may_share(im)) {
        status = reuse_share(im, err);
        report->copy_s +=
            save_progress_phase(im->progress, DCP_PHASE_COPY, start, core_clock_now());
    }
    if (status) return status;
    status = comm_agree(im->comm, ready_queue(im, err), err);
    if (!status) {
        int moved = move_data(im, save_context_of(im->store)->queue, report, err);
        if (im->is_last) save_progress_release(im->progress);
        status = comm_agree(im->comm, moved, err);
    }
    return status;
}

int image_write(image *im, dcp_report *report, dcp_error *err) {
    piece_sort(im->pieces, im->n_pieces);
    snapshot_begin(im);
    if (im->mover) im->mover->announce(im->mover->ctx, im);
    int status = create(im, err);
    if (!status)
        status = (im->engine == DCP_ENGINE_MPIO ? write_mpio : write_by_position)(im, report, err);
    return status;
}

int image_join_sums(image *im, dcp_error *err) {
    int status = comm_allreduce(im->comm, im->sums, im->layout->blocks, DCP_REDUCE_XOR, err);
    if (!status) reuse_note(im);
    return status;
}

int image_finish(image *im, dcp_report *report, dcp_error *err) {
    int status = DCP_OK;
    double start = core_clock_now();
    if (im->comm->rank == 0) {
        status = ready_queue(im, err);
        if (!status) status = tables_write(im, save_context_of(im->store)->queue, err);
    }
    double middle = core_clock_now();
    if (!status) status = io_sync(&im->file, err);
    reuse_close(im);
    report->publish_s += save_progress_phase(im->progress, DCP_PHASE_PUBLISH, start, middle);
    report->sync_s += save_progress_phase(im->progress, DCP_PHASE_SYNC, middle, core_clock_now());
    return comm_agree(im->comm, status, err);
}

void image_free(image *im) {
    if (im->layout) io_close(&im->file);
    reuse_free(im->reuse);
    pieces_free(im->pieces, im->n_pieces);
    free(im->sums);
    free(im->meta);
    *im = (image){.file.fd = -1};
}
