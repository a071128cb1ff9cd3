/* Filling one store from another's files. As in a rewrite, data bypass the page cache, and a rank
 * writes some parts of 4 MiB while it reads others. In layout sharded, each rank reads the files of
 * which it is the reader, usually the files that it wrote; in layout global, it reads its share of
 * the file. Before the step is published, the written tensors are checked against the checksums of
 * the step that was read. The thread that waits for the save opens the step and plans the save into
 * the other store, because that calls HDF5. Everything else is done by a thread of the filling,
 * over the filled store's communicator. The step that is read is pinned, so `keep` does not remove
 * it. */
#include "tiers/drain.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "core/system.h"
#include "format/folder.h"
#include "move/engine.h"
#include "reader/open.h"
#include "reader/read.h"
#include "reader/view.h"
#include "rewrite/rewrite.h"
#include "save/calls.h"
#include "store/retention.h"
#include "tiers/tier_list.h"

/* Memory for tensor data, in addition to the store's queue: four parts of 4 MiB, each with the
 * remainders of the pages in which it begins and ends. */
#define FILL_BYTES ((uint64_t)4 * (IO_SLOT_BYTES + LARGEST_PAGE_BYTES))

typedef struct drain_data {
    rewrite work;
    save_mover mover;
} drain_data;

/* For shards: reads the tables of the files of which this rank is the reader, and lists the boxes
 * of their rows. */
static int list_own_boxes(dcp_checkpoint *ckpt, reader_request **wants, size_t *n, dcp_error *err) {
    static const dcp_box scalar = {{0}, {1}};
    int status = DCP_OK;
    size_t rows = 0;
    for (size_t f = 0; f < ckpt->n_files && !status; f++) {
        if (ckpt->files[f].reader != ckpt->comm->rank) continue;
        status = format_tables_read(&ckpt->files[f], err);
        rows += ckpt->files[f].ub.rows;
    }
    *wants = status ? NULL : calloc(rows + 1, sizeof **wants);
    if (!status && !*wants) status = core_fail_memory(err, rows * sizeof **wants);
    for (size_t f = 0; f < ckpt->n_files && !status; f++)
        for (uint64_t i = 0; ckpt->files[f].rows && i < ckpt->files[f].ub.rows; i++) {
            const format_row *row = &ckpt->files[f].rows[i];
            char path[DCP_MAX_PATH + 1] = "";
            memcpy(path, row->tensor.path, format_index_tensor_path(row->tensor.path));
            const reader_tensor *t = reader_checkpoint_lookup(ckpt, path);
            if (t && row->bytes)
                (*wants)[(*n)++] = (reader_request){t, row->box ? row->box : &scalar};
        }
    return status;
}

/* Collective. Makes a view that contains the datasets that this rank copies. In layout global this
 * rank knows all datasets; for shards, it requests them from the homes. */
static int find_own_datasets(tiers_drain *d, dcp_error *err) {
    dcp_checkpoint *ckpt = d->ckpt;
    reader_request *wants = NULL;
    size_t n = 0;
    if (ckpt->rows == READER_ROWS_HERE)
        return comm_agree(d->comm, reader_view_local(ckpt, &d->data->work.view, err), err);
    int own, status = list_own_boxes(ckpt, &wants, &n, err);
    status = reader_view_request(ckpt, status, wants, n, &d->data->work.view, &own, err);
    if (!status && !own) own = reader_view_open_all(ckpt, &d->data->work.view, err);
    if (!status) status = comm_agree(d->comm, own, err);
    free(wants);
    for (size_t f = 0; f < ckpt->n_files; f++) format_tables_free_rows(&ckpt->files[f]);
    return status;
}

/* Sets *box to the part of the dataset that this rank copies. For shards that is the whole dataset,
 * if this rank is the file's reader; in layout global it is this rank's share of the tensor.
 * Returns false if the rank copies nothing of it. */
static bool share_of(const dcp_checkpoint *ckpt, const reader_tensor *t, const reader_dataset *p,
                     dcp_box *box) {
    if (ckpt->layout == DCP_LAYOUT_SHARDED) {
        *box = format_index_row_box(p->row);
        return p->row->bytes && p->file->reader == ckpt->comm->rank;
    }
    *box = dcp_box_chunk(&t->tensor, ckpt->comm->rank, ckpt->comm->size);
    return t->bytes != 0;
}

static int add_tensor(tiers_drain *d, const reader_tensor *t, dcp_error *err) {
    const dcp_box nothing = {{0}, {0}};
    const reader_datasets *known = reader_view_of(&d->data->work.view, d->ckpt, t);
    int status = dcp_state_add(d->data->work.state, &t->tensor, &nothing, NULL, err);
    for (size_t k = 0; k < known->n && !status; k++) {
        dcp_box box;
        if (share_of(d->ckpt, t, &known->datasets[k], &box))
            status = rewrite_add(&d->data->work, t, &box, -1, err);
    }
    return status;
}

static int list_boxes(tiers_drain *d, dcp_error *err) {
    const dcp_checkpoint *ckpt = d->ckpt;
    size_t n = 0;
    for (size_t i = 0; i < ckpt->n_tensors; i++) n += d->data->work.view.of[i].n;
    int status = rewrite_make(&d->data->work, n, FILL_BYTES, err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++)
        status = add_tensor(d, &ckpt->tensors[i], err);
    return status;
}

/* Opens the step and plans the save. Collective; called on the caller's thread. */
static int plan_filling(tiers_drain *d, dcp_error *err) {
    int status = reader_open_private(d->comm, d->path, &d->ckpt, err);
    d->data->work.from = d->ckpt;
    if (!status) status = find_own_datasets(d, err);
    if (status) return status;
    status = comm_agree(d->comm, list_boxes(d, err), err);
    if (status) return status;
    status = save_call_plan(d->to, DCP_OK, d->step, d->data->work.state,
                            dcp_checkpoint_json(d->ckpt), &d->options, &d->request, err);
    d->data->mover = rewrite_mover(&d->data->work);
    d->request.mover = &d->data->mover;
    return status;
}

static int fill(void *ctx, dcp_error *err) {
    tiers_drain *d = ctx;
    int status = d->planned; /* `err` has the failure, if any */
    move_progress progress = d->request.progress;
    dcp_report report = DCP_REPORT_INIT;
    progress.stop.cancelled = &d->task.cancelled;
    d->data->work.progress = &progress;
    if (!status) status = save_run(d->to, &d->request, &progress, &report, err);
    save_request_free(&d->request);
    rewrite_free(&d->data->work);
    dcp_checkpoint_close(d->ckpt);
    d->end = core_clock_now();
    return status;
}

static void free_drain(tiers_drain *d) {
    if (!d) return;
    free(d->path);
    free(d->about);
    free(d->data);
    free(d);
}

static int make_drain(const dcp_tiers *tiers, const tier *to, const tier *from, uint64_t step,
                      tiers_drain **out, dcp_error *err) {
    char path[PATH_MAX];
    const char *about = tiers->given.about_json;
    tiers_drain *d = *out = calloc(1, sizeof *d);
    if (!d) return core_fail_memory(err, sizeof *d);
    core_task_init(&d->task, fill, d);
    int status = format_name_path(from->store->dir, "", step, path, err);
    if (status) return status;
    d->path = strdup(path);
    d->about = about ? strdup(about) : NULL;
    d->data = calloc(1, sizeof *d->data);
    if (!d->data || !d->path || (about && !d->about)) return core_fail_memory(err, sizeof path);
    d->comm = tiers_comm_of(tiers, to);
    d->to = to->store;
    d->from = from->store;
    d->step = step;
    d->options =
        (dcp_save_options){.size = sizeof(dcp_save_options),
                           .layout = to->given.is_private ? DCP_LAYOUT_SHARDED : to->given.layout,
                           .engine = tiers->given.engine,
                           .about_json = d->about,
                           .on_progress = tiers->on_fill_progress,
                           .progress_ctx = tiers->fill_progress_ctx};
    return DCP_OK;
}

void tiers_drain_start(const dcp_tiers *tiers, tier *to, tier *from, uint64_t step,
                       bool is_own_thread) {
    tiers_drain *d = NULL;
    dcp_error err;
    int status =
        comm_agree(tiers_comm_of(tiers, to), make_drain(tiers, to, from, step, &d, &err), &err);
    if (status) {
        free_drain(d);
        tiers_record_save(to, step, status);
        tiers_warn(tiers, to, step, &err);
        return;
    }
    assert(!to->drain);
    to->drain = d;
    store_pin(d->from, d->step);
    d->begin = core_clock_now();
    d->planned = plan_filling(d, &d->task.error);
    /* an engine that calls MPI-IO needs the list's own thread: see save/calls.c */
    const bool is_for_any_thread =
        d->planned || move_engine_row((dcp_engine)d->request.agreed.engine)->is_for_any_thread;
    if (to->comm && is_for_any_thread && !d->planned) core_task_start(&d->task, "dcp-fill");
    if (!d->task.has_thread && (is_own_thread || is_for_any_thread)) core_task_finish(&d->task);
}

void tiers_drain_stop(const dcp_tiers *tiers, tier *t) {
    if (t->drain && tiers_is_abandoned(tiers, t->drain->step)) core_task_cancel(&t->drain->task);
}

bool tiers_drain_is_done(const tier *t) {
    return !t->drain || !t->drain->task.has_thread || core_task_is_done(&t->drain->task);
}

void tiers_drain_finish(const dcp_tiers *tiers, tier *t) {
    tiers_drain *d = t->drain;
    if (!d) return;
    core_task_finish(&d->task);
    t->drain = NULL;
    store_unpin(d->from, d->step);
    if (!tiers_is_abandoned(tiers, d->step)) tiers_record_save(t, d->step, d->task.status);
    tiers_update_store(tiers, t);
    if (d->task.status == DCP_ERR_CANCELLED)
        tiers_log(tiers, DCP_LOG_INFO, "step %llu is not copied to %s, because the run went back",
                  (unsigned long long)d->step, t->store->dir);
    else if (d->task.status)
        tiers_warn(tiers, t, d->step, &d->task.error);
    if (tiers->on_filled)
        tiers->on_filled(tiers->filled_ctx, (size_t)(t - tiers->list), d->step, d->begin, d->end);
    free_drain(d);
}
