/* Filling one store from another's files. Each rank reads back the boxes that it wrote itself, or
 * those that are its share, and checks every block. They are saved into the other store like any
 * state. The caller's thread opens the step and plans the save, since HDF5 is called there; all
 * else happens in a thread, over that store's communicator. The step that is read is pinned, so
 * that `keep` does not remove it. */
#include "tiers/drain.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/clock.h"
#include "core/fail.h"
#include "core/thread.h"
#include "move/engine.h"
#include "save/calls.h"
#include "save/save.h"
#include "step/checkpoint.h"
#include "step/list.h"
#include "step/read.h"
#include "store/retention.h"

/* A box of this rank as bytes of one dataset. */
typedef struct drain_source {
    dcp_checkpoint *ckpt;
    const step_dataset *piece;
    uint64_t first; /* of the box, in the dataset */
} drain_source;

static int read_source(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const drain_source *s = ctx;
    return step_read_bytes(&s->ckpt->cache, s->piece, s->first + offset, bytes, out, err);
}

/* The box of the dataset that this rank passes on: all of it, or of a whole tensor in one file that
 * all ranks see, some rows. */
static int share_of(const dcp_checkpoint *ckpt, const step_tensor *t, const step_dataset *p,
                    dcp_box *box, drain_source *out) {
    *out = (drain_source){.ckpt = (dcp_checkpoint *)ckpt, .piece = p};
    if (ckpt->layout == DCP_LAYOUT_SHARDED) {
        *box = step_index_row_box(p->row);
        return p->row->bytes && p->file->reader == ckpt->comm->rank;
    }
    *box = dcp_box_chunk(&t->tensor, ckpt->comm->rank, ckpt->comm->size);
    if (t->tensor.ndim && t->tensor.shape[0])
        out->first = box->start[0] * (t->bytes / t->tensor.shape[0]);
    return t->bytes != 0;
}

static int add_source_tensor(const dcp_checkpoint *ckpt, const step_tensor *t, dcp_state *state,
                             drain_source **next, dcp_error *err) {
    const dcp_box nothing = {{0}, {0}};
    int status = dcp_state_add(state, &t->tensor, &nothing, NULL, err);
    for (size_t k = 0; k < t->n_datasets && !status; k++) {
        dcp_box box;
        if (!share_of(ckpt, t, &ckpt->datasets[t->first_dataset + k], &box, *next)) continue;
        status = dcp_state_add_source(state, &t->tensor, &box, read_source, *next, -1, err);
        ++*next;
    }
    return status;
}

static int make_source_state(const dcp_checkpoint *ckpt, dcp_state **state, drain_source **sources,
                             dcp_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < ckpt->n_tensors; i++) n += ckpt->tensors[i].n_datasets;
    drain_source *next = *sources = calloc(n + 1, sizeof **sources);
    if (!next) return core_fail_memory(err, n * sizeof *next);
    int status = dcp_state_create(state, err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++)
        status = add_source_tensor(ckpt, &ckpt->tensors[i], *state, &next, err);
    return status;
}

/* Collective, on the caller's thread. */
static int plan_filling(tiers_drain *d, dcp_error *err) {
    int status = dcp_checkpoint_open_private(d->comm, d->path, &d->ckpt, err);
    if (status) return status;
    status = comm_agree(d->comm, make_source_state(d->ckpt, &d->state, &d->sources, err), err);
    if (status) return status;
    return save_call_plan(d->to, DCP_OK, d->step, d->state, dcp_checkpoint_json(d->ckpt),
                          &d->options, &d->request, err);
}

static void *fill_thread(void *ctx) {
    tiers_drain *d = ctx;
    move_progress progress = d->request.progress;
    dcp_report report = DCP_REPORT_INIT;
    if (!d->status) d->status = save_run(d->to, &d->request, &progress, &report, &d->error);
    save_request_free(&d->request);
    dcp_state_destroy(d->state);
    free(d->sources);
    dcp_checkpoint_close(d->ckpt);
    d->end = core_clock_now();
    pthread_mutex_lock(&d->lock);
    d->done = 1;
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void free_drain(tiers_drain *d) {
    if (!d) return;
    pthread_mutex_destroy(&d->lock);
    free(d->path);
    free(d->about);
    free(d);
}

static int make_drain(const dcp_tiers *tiers, const tier *to, const tier *from, tiers_drain **out,
                      dcp_error *err) {
    char path[PATH_MAX];
    const char *about = tiers->given.about_json;
    tiers_drain *d = *out = calloc(1, sizeof *d);
    if (!d) return core_fail_memory(err, sizeof *d);
    pthread_mutex_init(&d->lock, NULL);
    int status = step_name_path(from->store->dir, "", from->step, path, err);
    if (status) return status;
    d->path = strdup(path);
    d->about = about ? strdup(about) : NULL;
    if (!d->path || (about && !d->about)) return core_fail_memory(err, sizeof path);
    d->comm = to->comm ? to->comm : tiers->comm;
    d->to = to->store;
    d->from = from->store;
    d->step = from->step;
    d->options =
        (dcp_save_options){.size = sizeof(dcp_save_options),
                           .layout = to->given.is_private ? DCP_LAYOUT_SHARDED : to->given.layout,
                           .engine = tiers->given.engine,
                           .about_json = d->about,
                           .on_progress = tiers->on_fill_progress,
                           .progress_ctx = tiers->fill_progress_ctx};
    return DCP_OK;
}

void tiers_drain_start(const dcp_tiers *tiers, tier *to, tier *from) {
    tiers_drain *d = NULL;
    dcp_error err;
    int status = comm_agree(tiers->comm, make_drain(tiers, to, from, &d, &err), &err);
    if (status) {
        free_drain(d);
        tiers_note(to, from->step, status);
        tiers_warn(tiers, to, from->step, &err);
        return;
    }
    to->drain = d;
    store_pin(d->from, d->step);
    d->begin = core_clock_now();
    d->status = plan_filling(d, &d->error);
    /* MPI-IO is called where the caller calls it: see save/calls.c */
    int may_have_thread =
        to->comm && move_engine_choose(d->options.engine, d->to->dir)->is_for_any_thread;
    d->has_thread = may_have_thread && !d->status &&
                    !core_thread_start(&d->thread, NULL, fill_thread, d, "dcp-fill");
    if (!d->has_thread) fill_thread(d);
}

int tiers_drain_is_done(tier *t) {
    if (!t->drain) return 1;
    pthread_mutex_lock(&t->drain->lock);
    int done = t->drain->done;
    pthread_mutex_unlock(&t->drain->lock);
    return done;
}

void tiers_drain_finish(const dcp_tiers *tiers, tier *t) {
    tiers_drain *d = t->drain;
    if (!d) return;
    if (d->has_thread) pthread_join(d->thread, NULL);
    t->drain = NULL;
    store_unpin(d->from, d->step);
    tiers_note(t, d->step, d->status);
    if (d->status) tiers_warn(tiers, t, d->step, &d->error);
    if (tiers->on_filled)
        tiers->on_filled(tiers->filled_ctx, (size_t)(t - tiers->list), d->step, d->begin, d->end);
    free_drain(d);
}
