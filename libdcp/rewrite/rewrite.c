/* dcp_rewrite: a save of boxes that nobody holds in memory. */
#include <stdlib.h>

#include "core/clock.h"
#include "core/fail.h"
#include "rewrite/rewrite.h"
#include "save/calls.h"
#include "save/save.h"

enum { SCRATCH_BYTES = 2 << 20 }; /* SPAN_RUNS of runs.c with what lies between them */

static dcp_box box_of(const dcp_rewrite_options *o, const dcp_tensor *t, int shard, int shards) {
    return o->cut ? o->cut(o->cut_ctx, t, shard) : dcp_box_chunk(t, shard, shards);
}

/* `as` is the shard's number, -1 in a global file. */
static int add_box(rewrite *w, const step_tensor *t, const dcp_box *box, int as, dcp_error *err) {
    rewrite_box *b = &w->boxes[w->n_boxes++];
    *b = (rewrite_box){w, t, *box};
    return dcp_state_add_source(w->state, &t->tensor, box, rewrite_fetch, b, as, err);
}

static int add_tensor(rewrite *w, const step_tensor *t, const dcp_rewrite_options *o, int shards,
                      dcp_error *err) {
    const dcp_comm *comm = w->from->comm;
    const dcp_box nothing = {{0}, {0}};
    int status = dcp_state_add(w->state, &t->tensor, &nothing, NULL, err);
    if (status) return status;
    if (o->layout == DCP_LAYOUT_GLOBAL) {
        const dcp_box box = dcp_box_chunk(&t->tensor, comm->rank, comm->size);
        return add_box(w, t, &box, -1, err);
    }
    for (int r = comm->rank; r < shards && !status; r += comm->size) {
        const dcp_box box = box_of(o, &t->tensor, r, shards);
        status = add_box(w, t, &box, r, err);
    }
    return status;
}

static int make_state(rewrite *w, const dcp_rewrite_options *o, dcp_error *err) {
    const dcp_comm *comm = w->from->comm;
    int shards = o->shards ? o->shards : comm->size;
    if (w->from->scattered)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "%s: a rank doesn't see all of its files: they have to lie in one folder",
                         w->from->path);
    if (shards < 1 || shards > 99999)
        return core_fail(err, DCP_ERR_ARG, "%d shards: from 1 to 99999 are possible", shards);
    size_t mine = o->layout == DCP_LAYOUT_GLOBAL ? 1 : (size_t)(shards / comm->size) + 1;
    w->memory_bytes = o->memory_bytes ? o->memory_bytes : DCP_REWRITE_MEMORY;
    if (w->memory_bytes < DCP_REWRITE_LEAST)
        return core_fail(err, DCP_ERR_ARG, "memory_bytes: %llu, at least %llu are needed",
                         (unsigned long long)w->memory_bytes,
                         (unsigned long long)DCP_REWRITE_LEAST);
    w->boxes = calloc(w->from->n_tensors * mine + 1, sizeof *w->boxes);
    w->scratch = malloc(SCRATCH_BYTES);
    if (!w->boxes || !w->scratch)
        return core_fail_memory(err, w->from->n_tensors * mine * sizeof *w->boxes);
    int status = dcp_state_create(&w->state, err);
    for (size_t i = 0; i < w->from->n_tensors && !status; i++)
        status = add_tensor(w, &w->from->tensors[i], o, shards, err);
    return status;
}

static void free_state(rewrite *w) {
    dcp_state_destroy(w->state);
    free(w->boxes);
    free(w->scratch);
}

int dcp_rewrite(dcp_checkpoint *from, dcp_store *to, const dcp_rewrite_options *options,
                dcp_report *report, dcp_error *err) {
    static const dcp_rewrite_options defaults;
    if (!to) return core_fail(err, DCP_ERR_ARG, "dcp_rewrite: a store is needed");
    const dcp_rewrite_options *o = options ? options : &defaults;
    const dcp_save_options save = {.layout = o->layout,
                                   .shards = o->shards,
                                   .about_json = o->about_json,
                                   .on_progress = o->on_progress,
                                   .progress_ctx = o->progress_ctx};
    rewrite w = {.from = from, .stop = o->stop};
    save_request r = {0};
    dcp_report figures = {0};
    int status = save_call_begin(to, SAVE_REWRITE, &save, err);
    if (!status && !from)
        status = core_fail(err, DCP_ERR_ARG, "dcp_rewrite: a checkpoint is needed");
    if (!status) status = make_state(&w, o, err);
    if (!status) status = save_request_make(to, from->step, w.state, from->json, &save, &r, err);
    status = save_call_agree(to, status, SAVE_REWRITE, &save, err);
    const save_mover mover = {rewrite_announce, rewrite_move, rewrite_prove, &w};
    move_progress progress = r.progress;
    r.mover = &mover;
    w.progress = &progress;
    if (!status) status = save_run(to, &r, &progress, &figures, err);
    save_request_free(&r);
    free_state(&w);
    if (!status && report) *report = figures;
    return status;
}
