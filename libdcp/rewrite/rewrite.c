/* dcp_rewrite: a save whose boxes are not in memory but in a checkpoint's files.
 *
 * Fragments (move/piece.h) are read one at a time through the page cache, where the kernel reads
 * ahead. Whole pages of long runs, which hold nearly all bytes, bypass the page cache and are moved
 * in batches: some batches are being read while others are written. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/checks.h"
#include "core/fail.h"
#include "dcp/rewrite.h"
#include "move/transfer.h"
#include "reader/read.h"
#include "reader/view.h"
#include "rewrite/move.h"
#include "rewrite/rewrite.h"
#include "save/calls.h"

enum { SCRATCH_BYTES = 2 << 20 }; /* enough for SPAN_RUNS runs with gaps of JOIN_BYTES (move.c) */

int rewrite_make(rewrite *w, size_t boxes, uint64_t memory_bytes, dcp_error *err) {
    w->memory_bytes = memory_bytes;
    w->boxes = calloc(boxes + 1, sizeof *w->boxes);
    w->scratch = malloc(SCRATCH_BYTES);
    if (!w->boxes || !w->scratch) return core_fail_memory(err, boxes * sizeof *w->boxes);
    return dcp_state_create(&w->state, err);
}

int rewrite_add(rewrite *w, const reader_tensor *t, const dcp_box *box, int as, dcp_error *err) {
    rewrite_box *b = &w->boxes[w->n_boxes++];
    *b = (rewrite_box){w, t, *box};
    return dcp_state_add_source(w->state, &t->tensor, box, rewrite_fetch, b, as, err);
}

void rewrite_free(rewrite *w) {
    dcp_state_destroy(w->state);
    reader_view_free(&w->view);
    free(w->boxes);
    free(w->scratch);
}

static int add_tensor(rewrite *w, const reader_tensor *t, const dcp_rewrite_options *o, int shards,
                      dcp_error *err) {
    const dcp_comm *comm = w->from->comm;
    const dcp_box nothing = {{0}, {0}};
    int status = dcp_state_add(w->state, &t->tensor, &nothing, NULL, err);
    if (status) return status;
    if (o->layout == DCP_LAYOUT_GLOBAL) {
        const dcp_box box = dcp_box_chunk(&t->tensor, comm->rank, comm->size);
        return rewrite_add(w, t, &box, -1, err);
    }
    for (int r = comm->rank; r < shards && !status; r += comm->size) {
        const dcp_box box =
            o->cut ? o->cut(o->cut_ctx, &t->tensor, r) : dcp_box_chunk(&t->tensor, r, shards);
        status = rewrite_add(w, t, &box, r, err);
        for (int k = 0; o->cut_more && !status; k++) {
            const dcp_box other = o->cut_more(o->cut_ctx, &t->tensor, r, k);
            if (!dcp_box_elems(&other, t->tensor.ndim)) break;
            status = rewrite_add(w, t, &other, r, err);
        }
    }
    return status;
}

/* Returns an upper bound on the number of boxes that this rank writes, for all tensors together.
 * `mine` is an upper bound on the number of files that it writes; each of them has at least one box
 * per tensor. */
static size_t count_cut_boxes(const rewrite *w, const dcp_rewrite_options *o, int shards,
                              size_t mine) {
    size_t n = w->from->n_tensors * mine;
    for (size_t i = 0; i < w->from->n_tensors && o->cut_more; i++)
        for (int r = w->from->comm->rank; r < shards; r += w->from->comm->size) {
            const dcp_tensor *t = &w->from->tensors[i].tensor;
            dcp_box box = o->cut_more(o->cut_ctx, t, r, 0);
            for (int k = 1; dcp_box_elems(&box, t->ndim); k++, n++)
                box = o->cut_more(o->cut_ctx, t, r, k);
        }
    return n;
}

static int make_state(rewrite *w, const dcp_rewrite_options *o, dcp_error *err) {
    const dcp_comm *comm = w->from->comm;
    int shards = o->shards ? o->shards : comm->size;
    if (w->from->scattered)
        return core_fail_at(err, DCP_ERR_UNSUPPORTED, w->from->path,
                            "a rank doesn't see all of its files: all of them must be in one "
                            "folder that all ranks see");
    if (shards < 1 || shards > 99999)
        return core_fail(err, DCP_ERR_ARG, "%d shards: from 1 to 99999 are possible", shards);
    size_t mine = o->layout == DCP_LAYOUT_GLOBAL ? 1 : (size_t)(shards / comm->size) + 1;
    const uint64_t memory = o->memory_bytes ? o->memory_bytes : DCP_REWRITE_MEMORY;
    if (memory < DCP_REWRITE_LEAST)
        return core_fail(err, DCP_ERR_ARG, "memory_bytes is %llu, but must be at least %llu",
                         (unsigned long long)memory, (unsigned long long)DCP_REWRITE_LEAST);
    size_t boxes = count_cut_boxes(w, o, o->layout == DCP_LAYOUT_GLOBAL ? 0 : shards, mine);
    int status = rewrite_make(w, boxes, memory, err);
    for (size_t i = 0; i < w->from->n_tensors && !status; i++)
        status = add_tensor(w, &w->from->tensors[i], o, shards, err);
    return status;
}

enum {
    JOIN_BYTES = 64 << 10,
    RANGE_BYTES = 1 << 20,  /* maximum size of an announcement */
    MOST_BYTES = 128 << 20, /* maximum per new file: the page cache must keep these bytes */
};

/* A range of a file that will be read, and has not been announced yet. */
typedef struct announced_range {
    uint64_t from, to;
} announced_range;

typedef struct announcer {
    const dcp_checkpoint *from;
    announced_range *ranges; /* one per file */
    uint64_t told;
} announcer;

static void announce_range(announcer *a, format_file *file, announced_range *r) {
    if (r->to > r->from) {
        format_file_will_read(file, r->from, r->to - r->from);
        a->told += r->to - r->from;
    }
    *r = (announced_range){0, 0};
}

static int announce_run(void *ctx, const rewrite_run *run) {
    announcer *a = ctx;
    format_file *file = run->piece->file;
    announced_range *r = &a->ranges[file - a->from->files];
    uint64_t from = run->piece->row->offset + run->dataset_offset, to = from + run->bytes;
    bool joins = from + JOIN_BYTES >= r->from && from <= r->to + JOIN_BYTES &&
                 to - (r->from < from ? r->from : from) <= RANGE_BYTES;
    if (!joins) announce_range(a, file, r);
    if (r->from == r->to) *r = (announced_range){from, to};
    if (from < r->from) r->from = from;
    if (to > r->to) r->to = to;
    return a->told > MOST_BYTES;
}

static int announce_fragment(void *ctx, const move_fragment *f) {
    const state_box *box = f->piece->box; /* NULL: metadata */
    return box ? rewrite_runs(box->ctx, f->box_offset, f->bytes, announce_run, ctx) : 0;
}

/* The member `announce` of the rewrite's save_mover. Small tensors, and the edges of large runs,
 * are scattered over the old files, and each read of one of them would wait for the disk. So all of
 * them are announced to the kernel first, which reads them at the same time. Nearby ranges are
 * joined. */
static void announce_fragments(void *ctx, const save_image *im) {
    const dcp_checkpoint *from = ((const rewrite *)ctx)->from;
    announcer a = {.from = from, .ranges = calloc(from->n_files, sizeof *a.ranges)};
    size_t first = 0;
    if (!a.ranges) return; /* without announcements, reads are slower */
    move_fragments(im->pieces, im->n_pieces, &first, 0, UINT64_MAX, announce_fragment, &a);
    for (size_t f = 0; f < from->n_files; f++) announce_range(&a, &from->files[f], &a.ranges[f]);
    free(a.ranges);
}

/* Returns true if the tensors in the new files have the state id that the old files contain. */
static bool has_same_id(const dcp_checkpoint *from, const uint64_t *sums) {
    uint64_t raw = ~0ULL;
    char id[17];
    for (size_t i = 0; i < from->n_tensors; i++) {
        const reader_tensor *t = &from->tensors[i];
        raw = format_index_state_id(raw, &t->tensor, format_index_join_sums(sums, t->bytes));
        sums += format_index_blocks(t->bytes);
    }
    snprintf(id, sizeof id, "%016llx", (unsigned long long)~raw);
    return !strcmp(id, from->state_id);
}

static int check_dataset(const rewrite *w, const reader_dataset *p, reader_block_cache *cache,
                         dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t b = 0; b < format_index_blocks(p->row->bytes) && !status; b++)
        if (!(status = move_progress_poll(w->progress, err)))
            status = reader_read_block(cache, p, b, err);
    return status;
}

/* Collective. */
static int find_damage(const rewrite *w, dcp_error *err) {
    dcp_checkpoint *from = w->from;
    reader_block_cache cache = {0};
    int status = DCP_OK;
    for (size_t i = 0; i < from->n_tensors && !status; i++) {
        const reader_datasets *known = reader_view_of(&w->view, from, &from->tensors[i]);
        for (size_t k = 0; k < known->n && !status; k++)
            if (!known->datasets[k].file->hidden)
                status = check_dataset(w, &known->datasets[k], &cache, err);
    }
    free(cache.data);
    status = comm_agree(from->comm, status, err);
    if (status) return status;
    return core_fail_at(err, DCP_ERR_CORRUPT, from->path,
                        "meta: the state id is not that of the tensors: the shards belong "
                        "to different states, or bytes have changed since they were first read");
}

/* The member `prove` of the rewrite's save_mover: checks that the written tensors equal the old
 * tensors. An old file of layout global has checksums of the tensors' blocks. Old shards have only
 * the state id for whole tensors; if it differs, each rank checks the blocks of the datasets that
 * it has read from, to find the damaged dataset. */
static int prove_sums(void *ctx, const uint64_t *sums, dcp_error *err) {
    dcp_checkpoint *from = ((rewrite *)ctx)->from;
    int status = DCP_OK;
    if (from->layout == DCP_LAYOUT_SHARDED)
        return has_same_id(from, sums) ? DCP_OK : find_damage(ctx, err);
    for (size_t i = 0; i < from->n_tensors && !status; i++) {
        const reader_dataset *p = from->tensors[i].datasets;
        status = reader_read_compare_sums(p, sums, err);
        sums += format_index_blocks(p->row->bytes);
    }
    return status;
}

save_mover rewrite_mover(rewrite *w) {
    return (save_mover){announce_fragments, rewrite_move, prove_sums, w};
}

/* Collective. */
static int ask_datasets(rewrite *w, dcp_error *err) {
    reader_request *wants = calloc(w->n_boxes + 1, sizeof *wants);
    int own, status = wants ? DCP_OK : core_fail_memory(err, w->n_boxes * sizeof *wants);
    for (size_t i = 0; i < w->n_boxes && !status; i++)
        wants[i] = (reader_request){w->boxes[i].tensor, &w->boxes[i].box};
    status = reader_view_request(w->from, status, wants, w->n_boxes, &w->view, &own, err);
    if (!status && !own) own = reader_view_open_all(w->from, &w->view, err);
    if (!status) status = comm_agree(w->from->comm, own, err);
    free(wants);
    return status;
}

/* Checks that the checkpoint and the store have the same communicator, or one rank each. */
static int check_same_comm(const dcp_comm *from, const dcp_store *to, dcp_error *err) {
    if (from == to->comm || (from->size == 1 && to->comm->size == 1)) return DCP_OK;
    return core_fail_at(
        err, DCP_ERR_ARG, to->dir,
        "dcp_rewrite: the checkpoint was opened on another communicator (rank %d of "
        "%d) than the store (rank %d of %d): open both on the same one",
        from->rank, from->size, to->comm->rank, to->comm->size);
}

int dcp_rewrite(dcp_checkpoint *from, dcp_store *to, const dcp_rewrite_options *options,
                dcp_report *report, dcp_error *err) {
    if (!to) return core_fail(err, DCP_ERR_ARG, "dcp_rewrite: a store is needed");
    dcp_rewrite_options own;
    const dcp_rewrite_options *o = &own;
    int status = core_sized_copy_in(&own, sizeof own, options, "DCP_REWRITE_OPTIONS_INIT", err);
    if (!status) status = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    const dcp_save_options save = {.size = sizeof save,
                                   .layout = o->layout,
                                   .shards = o->shards,
                                   .about_json = o->about_json,
                                   .replicas =
                                       DCP_REPLICAS_TRUST, /* all replicas come from one dataset */
                                   .on_progress = o->on_progress,
                                   .progress_ctx = o->progress_ctx,
                                   .stop = o->stop,
                                   .stop_ctx = o->stop_ctx};
    rewrite w = {.from = from};
    save_request r = {0};
    dcp_report figures = DCP_REPORT_INIT;
    status = save_call_begin(to, status, SAVE_REWRITE, &save, err);
    if (!status && !from)
        status = core_fail(err, DCP_ERR_ARG, "dcp_rewrite: a checkpoint is needed");
    if (!status) status = check_same_comm(from->comm, to, err);
    if (from) reader_checkpoint_wait(from);
    if (!status)
        status = core_option_check_choice("layout", (int)o->layout, DCP_LAYOUT_SHARDED, err);
    if (!status) status = make_state(&w, o, err);
    if (!status && from->rows == READER_ROWS_HERE) status = reader_view_local(from, &w.view, err);
    if (!status) status = save_request_make(to, from->step, w.state, from->json, &save, &r, err);
    status = save_call_agree(to, status, SAVE_REWRITE, &save, &r, err);
    const save_mover mover = rewrite_mover(&w);
    r.progress.stop.what = "the rewrite";
    move_progress progress = r.progress;
    r.mover = &mover;
    w.progress = &progress;
    if (!status && from->rows != READER_ROWS_HERE) status = ask_datasets(&w, err);
    if (!status) status = save_prepare(to, &r, err);
    if (!status) status = save_run(to, &r, &progress, &figures, err);
    save_request_free(&r);
    rewrite_free(&w);
    if (!status) core_sized_copy_out(report, &figures, sizeof figures);
    return status;
}
