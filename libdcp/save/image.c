/* Writing one file. Each stage ends with an agreement, so all ranks of the image see one status. */
#include "save/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "move/engine.h"
#include "save/context.h"
#include "save/reuse.h"
#include "store/recycle.h"

/* The metadata is a piece of rank 0 like any other, without a checksum of blocks. */
static void add_metadata(image *im) {
    for (size_t i = 0; i < im->layout->skeleton.n_runs; i++) {
        const skeleton_run *run = &im->layout->skeleton.runs[i];
        const box_copy whole = {.run_bytes = run->bytes, .runs = 1};
        move_piece *p = &im->pieces[im->n_pieces++];
        *p = (move_piece){.file_offset = run->offset, .bytes = run->bytes, .raw = run->data};
        move_piece_set_copy(p, &whole);
        p->bulk = 0;
    }
}

int image_prepare(image *im, dcp_comm *comm, const save_file *layout, const char *folder,
                  const char *name, size_t n_pieces, move_progress *progress, dcp_error *err) {
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

move_piece *image_add(image *im, size_t row, const state_box *box, const box_copy *copy) {
    const step_row *r = &im->layout->rows[row];
    move_piece *p = &im->pieces[im->n_pieces++];
    *p = (move_piece){.file_offset = r->offset,
                      .bytes = r->bytes,
                      .row = r,
                      .box = box,
                      .sums = im->sums + r->first_block};
    move_piece_set_copy(p, copy);
    if (box->device) {
        im->device.staging = save_context_of(im->store)->staging;
        p->device = &im->device;
    }
    if (im->mover && copy->run_bytes >= MOVED_BYTES) p->bulk = p->file_offset % PAGE_BYTES == 0;
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
    if (im->comm->rank || !im->engine->is_by_position || !im->reuse->now->refused) return;
    im->stands =
        store_recycle_take(im->store, strrchr(im->path, '/') + 1, pages_of(im->layout), im->path);
}

void image_note_spare(const image *im, uint64_t step) {
    if (!im->comm->rank && im->engine->is_by_position)
        store_recycle_note(im->store, step, im->file.fd, pages_of(im->layout));
}

static int create(image *im, dcp_error *err) {
    int status = DCP_OK;
    uint64_t bytes = reuse_may_share(im) ? 0 : im->layout->skeleton.file_bytes;
    if (im->comm->rank == 0 && !im->stands) status = io_create(im->path, bytes, err);
    return comm_agree(im->comm, status, err);
}

/* Of a file whose bytes may be on the disk already. */
static int share_unchanged(image *im, dcp_report *report, dcp_error *err) {
    double start = core_clock_now();
    if (!reuse_may_share(im)) return DCP_OK;
    int status = reuse_share(im, err);
    report->copy_s += move_progress_phase(im->progress, DCP_PHASE_COPY, start, core_clock_now());
    return status;
}

static int move_pieces(image *im, dcp_report *report, dcp_error *err) {
    const move_file file = {
        .end = im->layout->skeleton.file_bytes, .file = &im->file, .path = im->path};
    move_transfer t = {.direction = MOVE_TO_FILE,
                       .comm = im->comm,
                       .queue = save_context_of(im->store)->queue,
                       .files = &file,
                       .n_files = 1,
                       .pieces = im->pieces,
                       .n_pieces = im->n_pieces,
                       .device = &im->device,
                       .progress = im->progress,
                       .is_last = im->is_last,
                       .bulk_is_apart = im->mover != NULL,
                       .report = report};
    return im->engine->to_file(&t, err);
}

int image_write(image *im, dcp_report *report, dcp_error *err) {
    move_pieces_sort(im->pieces, im->n_pieces);
    move_device_begin(&im->device, im->pieces, im->n_pieces);
    if (im->mover) im->mover->announce(im->mover->ctx, im);
    int status = create(im, err);
    if (!status) status = comm_agree(im->comm, im->engine->open(im->path, &im->file, err), err);
    if (!status) status = share_unchanged(im, report, err);
    if (!status && im->engine->is_by_position)
        status =
            comm_agree(im->comm, save_context_open_queue(save_context_of(im->store), err), err);
    return status ? status : move_pieces(im, report, err);
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
        status = save_context_open_queue(save_context_of(im->store), err);
        if (!status) status = tables_write(im, save_context_of(im->store)->queue, err);
    }
    double middle = core_clock_now();
    if (!status) status = io_sync(&im->file, err);
    reuse_close(im);
    report->publish_s += move_progress_phase(im->progress, DCP_PHASE_PUBLISH, start, middle);
    report->sync_s += move_progress_phase(im->progress, DCP_PHASE_SYNC, middle, core_clock_now());
    return comm_agree(im->comm, status, err);
}

void image_free(image *im) {
    if (im->layout) io_close(&im->file);
    reuse_free(im->reuse);
    move_pieces_free(im->pieces, im->n_pieces);
    free(im->sums);
    free(im->meta);
    *im = (image){.file.fd = -1};
}
