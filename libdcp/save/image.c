/* What is written into a file, as pieces. */
#include "save/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/fail.h"
#include "move/engine.h"
#include "save/context.h"

/* The metadata is a piece of rank 0 like any other, without a checksum of blocks. */
static void add_metadata(save_image *im) {
    for (size_t i = 0; i < im->layout->skeleton.n_runs; i++) {
        const h5_run *run = &im->layout->skeleton.runs[i];
        const box_copy whole = {.run_bytes = run->bytes, .runs = 1};
        move_piece *p = &im->pieces[im->n_pieces++];
        *p = (move_piece){.file_offset = run->offset, .bytes = run->bytes, .raw = run->data};
        move_piece_set_copy(p, &whole);
        p->bulk = 0;
    }
}

int save_image_prepare(save_image *im, dcp_comm *comm, const save_file *layout, const char *folder,
                       const char *name, size_t n_pieces, move_progress *progress, dcp_error *err) {
    *im = (save_image){.comm = comm, .layout = layout, .file.fd = -1, .progress = progress};
    if (snprintf(im->path, sizeof im->path, "%s/%s", folder, name) >= (int)sizeof im->path)
        return core_fail(err, DCP_ERR_ARG, "path of %s is too long", folder);
    size_t total = n_pieces + layout->skeleton.n_runs;
    im->pieces = calloc(total + 1, sizeof *im->pieces);
    im->sums = calloc(layout->blocks + 1 + COMM_XOR_ROOM(comm->size), sizeof *im->sums);
    if (!im->pieces || !im->sums)
        return core_fail_memory(err, total * sizeof *im->pieces + layout->blocks * 8);
    add_metadata(im);
    return DCP_OK;
}

move_piece *save_image_add(save_image *im, size_t row, const state_box *box, const box_copy *copy) {
    const step_row *r = &im->layout->rows[row];
    move_piece *p = &im->pieces[im->n_pieces++];
    *p = (move_piece){.file_offset = r->offset,
                      .bytes = r->bytes,
                      .row = r,
                      .box = box,
                      .sums = im->sums + r->first_block};
    move_piece_set_copy(p, copy);
    if (box->device) {
        im->device.staging = save_context_of(im->store)->memory.staging;
        p->device = &im->device;
    }
    if (im->mover) p->bulk = p->bulk && copy->run_bytes >= SAVE_APART_BYTES;
    return p;
}

void save_image_free(save_image *im) {
    if (im->layout) io_use_close(&im->file);
    if (im->reuse && im->reuse->from >= 0) close(im->reuse->from);
    if (im->reuse) free(im->reuse->shared.list);
    if (im->reuse) free(im->reuse->sums);
    free(im->reuse);
    move_pieces_free(im->pieces, im->n_pieces);
    free(im->sums);
    free(im->meta);
    *im = (save_image){.file.fd = -1};
}
