/* From boxes of the state to pieces of the checkpoint's datasets, and moving those. */
#include "load/pieces.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/fail.h"
#include "io/queue.h"
#include "move/engine.h"
#include "move/transfer.h"
#include "step/hold.h"

/* Of so few datasets near a box there is memory for a piece each; of more, those are counted that
 * share elements with it: one long dataset makes all of a tensor's near. */
enum { FEW = 64 };

static int make_sums(load_job *l, dcp_error *err) {
    uint64_t blocks = 0;
    l->first_sum = calloc(l->chosen.n + 1, sizeof *l->first_sum);
    if (!l->first_sum) return core_fail_memory(err, l->chosen.n * sizeof *l->first_sum);
    for (size_t i = 0; i < l->chosen.n; i++) {
        l->first_sum[i] = blocks;
        blocks += l->chosen.stored[i]->blocks;
    }
    l->first_sum[l->chosen.n] = blocks;
    l->sums = calloc(blocks + 1, sizeof *l->sums);
    return l->sums ? DCP_OK : core_fail_memory(err, blocks * sizeof *l->sums);
}

/* A path to the file while its folder is open, whatever name that has; NULL: no memory. */
static char *path_by_folder(const step_file *file) {
    const char *slash = strrchr(file->path, '/');
    char *path;
    if (asprintf(&path, "/proc/self/fd/%d/%s", file->folder, slash ? slash + 1 : file->path) < 0)
        return NULL;
    return path;
}

/* HDF5 opens files by their paths. Where the step has lost its name since it was opened, another
 * step may have it. */
static int find_detours(load_job *l, dcp_error *err) {
    const dcp_checkpoint *ckpt = l->ckpt;
    int moved = ckpt->hold && !step_hold_is_named(ckpt->hold);
    for (size_t f = 0; f < ckpt->n_files && moved; f++) {
        const step_file *file = ckpt->by_address[f];
        if (file->hidden) continue;
        l->files[f].path = path_by_folder(file);
        if (!l->files[f].path) return core_fail_memory(err, PATH_MAX);
    }
    return DCP_OK;
}

static int list_files(load_job *l, dcp_error *err) {
    const dcp_checkpoint *ckpt = l->ckpt;
    l->files = calloc(ckpt->n_files, sizeof *l->files);
    if (!l->files) return core_fail_memory(err, ckpt->n_files * sizeof *l->files);
    for (size_t f = 0; f < ckpt->n_files; f++) {
        step_file *file = ckpt->by_address[f];
        l->files[f] = (move_file){.base = file->base,
                                  .end = file->base + file->ub.file_bytes,
                                  .file = &file->file,
                                  .path = file->path,
                                  .owner = file};
    }
    return DCP_OK;
}

int load_pieces_prepare(load_job *l, dcp_error *err) {
    int status = make_sums(l, err);
    if (!status) status = list_files(l, err);
    if (status) return status;
    return l->engine->is_by_position ? io_queue_create(&l->queue, err) : find_detours(l, err);
}

void load_pieces_free(load_job *l) {
    io_queue_destroy(l->queue);
    for (size_t f = 0; l->files && f < l->ckpt->n_files; f++)
        if (l->files[f].path != l->ckpt->by_address[f]->path) free((char *)l->files[f].path);
    free(l->files);
    free(l->sums);
    free(l->first_sum);
}

/* What one dataset holds of one box. */
static int make_piece(const load_job *l, const plan_box *b, const state_box *box,
                      const step_dataset *from, move_piece *out) {
    box_copy copy;
    if (!step_index_shared(from->row, &box->box, &copy)) return 0;
    *out = (move_piece){.file_offset = from->file->base + from->row->offset,
                        .bytes = from->row->bytes,
                        .row = from->row,
                        .box = box};
    if (b->keeper && l->boxes.exact[b->tensor])
        out->sums = l->sums + l->first_sum[b->tensor] + from->first_block;
    move_piece_set_copy(out, &copy);
    if (from->file->hidden) out->bulk = 0;
    if (box->device) out->device = (move_device *)&l->device;
    return 1;
}

size_t load_pieces_of(const load_job *l, const plan_box *b, const state_box *box, move_piece *out) {
    const step_tensor *t = l->chosen.stored[b->tensor];
    const step_dataset *from = &l->ckpt->datasets[t->first_dataset];
    size_t n = 0, k, end;
    step_checkpoint_near(l->ckpt, t, &box->box, &k, &end);
    if (!out && end - k <= FEW) return end - k;
    for (; k < end; k++) {
        box_copy copy;
        n += (size_t)(out ? make_piece(l, b, box, &from[k], out + n)
                          : step_index_shared(from[k].row, &box->box, &copy));
    }
    return n;
}

/* HDF5 sees a file only when plain reads have shown that its metadata is intact. */
static int check_metadata(void *owner, dcp_error *err) {
    return step_file_check_outside(owner, err);
}

int load_pieces_move(load_job *l, move_piece *pieces, size_t n, dcp_error *err) {
    move_transfer t = {.direction = MOVE_FROM_FILE,
                       .comm = l->comm,
                       .queue = l->queue,
                       .files = l->files,
                       .n_files = l->ckpt->n_files,
                       .reader_ranges = l->ckpt->reader_ranges,
                       .pieces = pieces,
                       .n_pieces = n,
                       .device = &l->device,
                       .progress = &l->progress,
                       .check_metadata = check_metadata,
                       .report = &l->report};
    move_pieces_sort(pieces, n);
    return l->engine->from_files(&t, err);
}
