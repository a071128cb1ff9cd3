/* Plan, write, publish. Layout global is written here, layout sharded by save/sharded.c. Where
 * anything fails, all ranks return the same status and the temporary folder is removed. */
#include "save/save.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/fail.h"
#include "core/json.h"
#include "move/engine.h"
#include "redundancy/encode.h"
#include "save/context.h"
#include "save/history.h"
#include "save/replica_sums.h"
#include "save/reuse.h"
#include "save/sharded.h"
#include "save/write.h"
#include "step/about.h"
#include "store/domains.h"
#include "store/publication.h"
#include "store/room.h"

/* What this rank keeps, and so writes or hands on. */
static uint64_t kept_bytes(const save_request *r, const save_plan *plan) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->boxes.n; i++) {
        const plan_box *b = &plan->boxes.boxes[i];
        const dcp_tensor *t = &r->sorted[b->tensor]->tensor;
        if (b->keeper) bytes += dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
    }
    return bytes;
}

static uint64_t total_bytes(const save_request *r) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->n; i++) bytes += r->sorted[i]->bytes;
    return bytes;
}

/* What about.json gets: a leader's figures up to the data's sync, then the caller's members. */
static char *about_members(const dcp_store *store, const save_request *r, const char *folder,
                           const dcp_report *report, double seconds) {
    json_t *object =
        json_pack("{s:I, s:s, s:s, s:I, s:I, s:f, s:I, s:f}", "step", (json_int_t)r->step, "layout",
                  r->layout ? "sharded" : "global", "engine", dcp_engine_name(report->engine),
                  "tensors", (json_int_t)r->n, "bytes", (json_int_t)report->bytes, "seconds",
                  seconds, "cloned", (json_int_t)report->cloned_bytes, "gb_per_s",
                  seconds > 0 ? (double)report->bytes / 1e9 / seconds : 0.0);
    json_t *times = json_pack("{s:f, s:f, s:f, s:f, s:f}", "plan_s", report->plan_s, "gather_s",
                              report->gather_s, "copy_s", report->copy_s, "write_s",
                              report->write_s, "sync_s", report->sync_s);
    int failed = json_object_update_new(object, times);
    if (!failed && store->options.private_dirs)
        failed = json_object_set_new(object, "shards", step_about_shards(folder, r->shards)) ||
                 store_domains_describe(store, object);
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    json_t *theirs = r->about ? core_json_read(r->about, strlen(r->about), NULL) : NULL;
    if (object && theirs) json_object_update_missing(object, theirs);
    char *text = object ? core_json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(theirs);
    json_decref(object);
    return text;
}

/* From the first agreement on it is too late to cancel. */
static int publish(dcp_store *store, const save_request *r, const char *folder,
                   const dcp_report *report, double start, move_progress *progress,
                   dcp_error *err) {
    char *members = about_members(store, r, folder, report, core_clock_now() - start);
    int status = members ? move_progress_ask(progress, err) : core_fail_memory(err, 1024);
    status = comm_agree(store->comm, status, err);
    if (!status) status = store_publish(store, r->step, members, err);
    free(members);
    return status;
}

/* At the end of a save: what it noted is the history, where it was published. */
static void note_saved(const dcp_store *store, int status, const save_request *r,
                       dcp_report *report) {
    save_context *kept = save_context_of(store);
    struct save_history *last = kept->history, *now = kept->noted;
    kept->noted = NULL;
    if (!status) {
        save_history_compare(store, last, now, r, report);
        kept->history = now;
    }
    save_history_free(status ? now : last);
}

static void add_boxes(save_image *im, const save_request *r, const save_plan *plan) {
    for (size_t i = 0; i < plan->boxes.n; i++) {
        const plan_box *b = &plan->boxes.boxes[i];
        if (!b->keeper) continue;
        const dcp_tensor *t = &r->sorted[b->tensor]->tensor;
        const dcp_box all = dcp_box_whole(t);
        box_copy copy;
        core_box_copy_between(&copy, t->ndim, dcp_dtype_bytes(t->dtype), &all, &b->box->box);
        save_image_add(im, b->tensor, b->box, &copy)->own = save_replicas_own(plan->replicas, i);
    }
}

static int move_apart(save_image *im, dcp_report *report, dcp_error *err) {
    double start = core_clock_now();
    int status = comm_agree(im->comm, im->mover->move(im->mover->ctx, &im, 1, err), err);
    report->write_s += move_progress_phase(im->progress, DCP_PHASE_WRITE, start, core_clock_now());
    return status;
}

/* Collective. Layout global: all ranks write one file into `folder`. */
static int write_global(dcp_store *store, const save_request *r, const save_plan *plan,
                        const char *folder, move_progress *progress, dcp_report *report,
                        dcp_error *err) {
    save_image im;
    int status = save_image_prepare(&im, store->comm, &plan->file, folder, "state.h5",
                                    plan->boxes.n, progress, err);
    im.store = store;
    im.is_last = 1;
    im.engine = plan->engine;
    im.mover = plan->engine->is_by_position ? r->mover : NULL;
    im.replicas = plan->replicas;
    if (!status) add_boxes(&im, r, plan);
    if (!status && !move_pieces_have_copies(im.pieces, im.n_pieces))
        status = core_fail_memory(err, im.n_pieces * sizeof *im.pieces);
    if (!status) status = save_reuse_prepare(&im, store, 0, err);
    if (!status) save_image_take_recycled(&im);
    if (!status && r->meta && !(im.meta = strdup(r->meta)))
        status = core_fail_memory(err, strlen(r->meta));
    status = comm_agree(store->comm, status, err);
    if (!status) status = save_image_write(&im, report, err);
    if (!status && im.mover) status = move_apart(&im, report, err);
    if (!status) status = save_image_join_sums(&im, err);
    if (!status) status = save_replicas_compare(store, r, &plan->boxes, plan->replicas, err);
    if (!status && r->mover)
        status = comm_agree(store->comm, r->mover->prove(r->mover->ctx, im.sums, err), err);
    if (!status) save_history_note(save_context_of(store)->noted, r, im.sums);
    if (!status) report->cloned_bytes = im.reuse->bytes;
    if (!status) status = save_image_finish(&im, report, err);
    if (!status) save_image_note_recycled(&im, r->step);
    save_image_free(&im);
    return status;
}

/* Collective. */
static int prepare_replicas(dcp_store *store, const save_request *r, save_plan *plan,
                            dcp_error *err) {
    if (r->replicas == DCP_REPLICAS_TRUST || !plan->boxes.has_replicas) return DCP_OK;
    int status = save_replicas_make(r->sorted, &plan->boxes, save_context_of(store)->staging,
                                    &plan->replicas, err);
    return comm_agree(store->comm, status, err);
}

/* Collective: into the folder, and from there under the step's name. */
static int write_step(dcp_store *store, const save_request *r, save_plan *plan, const char *folder,
                      move_progress *progress, double start, dcp_report *report, dcp_error *err) {
    save_context *kept = save_context_of(store);
    int status = prepare_replicas(store, r, plan, err);
    if (!status && !kept->history)
        status = save_history_recall(store, r, plan, &kept->history, err);
    if (!status) {
        status = move_progress_ask(progress, err);
        if (!status) status = save_history_make(store, r, plan, &kept->noted, err);
        status = comm_agree(store->comm, status, err);
    }
    if (!status)
        status = (r->layout == DCP_LAYOUT_SHARDED ? save_sharded : write_global)(
            store, r, plan, folder, progress, report, err);
    double written = core_clock_now();
    if (!status && store->groups)
        status =
            redundancy_encode(store->comm, store->groups, folder, r->step, &progress->stop, err);
    if (!status) status = publish(store, r, folder, report, start, progress, err);
    note_saved(store, status, r, report);
    save_replicas_free(plan->replicas);
    plan->replicas = NULL;
    report->publish_s +=
        move_progress_phase(progress, DCP_PHASE_PUBLISH, written, core_clock_now());
    return status;
}

int save_prepare(dcp_store *store, const save_request *r, dcp_error *err) {
    return save_plan_make(store, r, &save_context_of(store)->plan, err);
}

static int run_once(dcp_store *store, const save_request *r, move_progress *progress,
                    dcp_report *report, dcp_error *err) {
    char folder[PATH_MAX];
    save_context *kept = save_context_of(store);
    save_plan *plan = kept->plan;
    double start = core_clock_now();
    report->plan_s = move_progress_phase(progress, DCP_PHASE_PLAN, plan->begin, plan->end);
    report->bytes = total_bytes(r);
    report->engine = plan->engine->engine;
    progress->total = kept_bytes(r, plan);
    comm_stop_begin(&progress->stop, store->comm);
    int status = store_begin(store, r->step, folder, err);
    if (status) {
        if (status != DCP_ERR_STATE) store_rollback(store, r->step);
        return store_find_cause(store, status, err);
    }
    report->plan_s += move_progress_phase(progress, DCP_PHASE_PLAN, start, core_clock_now());
    status = write_step(store, r, plan, folder, progress, plan->begin, report, err);
    if (status) {
        save_context_reset(kept, status);
        store_rollback(store, r->step);
        status = store_find_cause(store, status, err);
    }
    report->total_s = move_progress_phase(progress, DCP_PHASE_ALL, plan->begin, core_clock_now());
    return status;
}

/* What a try told of its bytes does not count for the next one. */
static int run_again(dcp_store *store, const save_request *r, const move_progress *first,
                     move_progress *progress, dcp_report *report, dcp_error *err) {
    *progress = *first;
    *report = (dcp_report)DCP_REPORT_INIT;
    return run_once(store, r, progress, report, err);
}

int save_run(dcp_store *store, const save_request *r, move_progress *progress, dcp_report *report,
             dcp_error *err) {
    const move_progress first = *progress;
    dcp_error why = {0};
    uint64_t from = 0;
    int made = r->make_room;
    int status = run_once(store, r, progress, report, &why);
    while (status == DCP_ERR_NO_SPACE && made) {
        /* no step is given up for a save that a rank has cancelled meanwhile */
        int failed = comm_agree(store->comm, move_progress_status(progress, err), err);
        if (!failed) failed = store_room_make(store, &from, &made, err);
        if (failed) return failed;
        if (made)
            status = run_again(store, r, &first, progress, report, &why);
        else
            store_room_explain(store, &why);
    }
    if (status && err) *err = why;
    return status;
}
