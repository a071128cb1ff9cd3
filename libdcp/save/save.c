/* Planning, writing and publishing a step. Layout global is written here, layout sharded by
 * save/write.c. If anything fails, all ranks return the same status and the temporary folder is
 * removed. */
#include "save/request.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/vote.h"
#include "core/fail.h"
#include "core/json.h"
#include "core/system.h"
#include "format/about.h"
#include "io/queue.h"
#include "move/engine.h"
#include "move/window_cache.h"
#include "redundancy/encode.h"
#include "save/context.h"
#include "save/copy.h"
#include "save/history.h"
#include "save/image.h"
#include "save/plan.h"
#include "save/write.h"
#include "store/domains.h"
#include "store/publication.h"
#include "store/remove.h"
#include "store/returned.h"

/* Returns how many bytes this rank keeps, which it writes or sends to the rank that writes them. */
static uint64_t kept_bytes(const save_request *r, const save_plan *plan) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->boxes.n; i++) {
        const plan_box *b = &plan->boxes.boxes[i];
        const dcp_tensor *t = &r->sorted[b->tensor]->tensor;
        if (b->keeper) bytes += dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
    }
    return bytes;
}

/* Returns how many bytes this rank supplies if the holders of replicas share the writing. Engines
 * that do not write by position process complete boxes. */
static uint64_t supplied_bytes(const save_image *im) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < im->n_pieces; i++) {
        const move_piece *p = &im->pieces[i];
        if (p->box)
            bytes += im->engine->is_by_position ? move_piece_supplied(p)
                                                : p->copy->runs * p->copy->run_bytes;
    }
    return bytes;
}

static uint64_t total_bytes(const save_request *r) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->n; i++) bytes += r->sorted[i]->bytes;
    return bytes;
}

/* Adds the members of about.json that only a private store has. */
static int describe_private(const dcp_store *store, const save_request *r, const char *folder,
                            json_t *object, dcp_error *err) {
    json_t *shards = NULL;
    const int status = format_about_shards(folder, r->shards, &shards, err);
    if (status) return status;
    const bool failed =
        json_object_set_new(object, "shards", shards) || store_domains_describe(store, object);
    return failed ? core_fail_memory(err, 4096) : DCP_OK;
}

/* Makes the members of about.json: this rank's figures so far, followed by the caller's members. */
static int about_members(const dcp_store *store, const save_request *r, const char *folder,
                         const dcp_report *report, double seconds, char **out, dcp_error *err) {
    json_t *object =
        json_pack("{s:I, s:s, s:s, s:I, s:I, s:f, s:I, s:f}", "step", (json_int_t)r->step, "layout",
                  r->layout ? "sharded" : "global", "engine", dcp_engine_name(report->engine),
                  "tensors", (json_int_t)r->n, "bytes", (json_int_t)report->bytes, "seconds",
                  seconds, "cloned", (json_int_t)report->cloned_bytes, "gb_per_s",
                  seconds > 0 ? (double)report->bytes / 1e9 / seconds : 0.0);
    json_t *times = json_pack("{s:f, s:f, s:f, s:f, s:f}", "plan_s", report->plan_s, "gather_s",
                              report->gather_s, "copy_s", report->copy_s, "write_s",
                              report->write_s, "sync_s", report->sync_s);
    json_t *theirs = r->about ? core_json_read(r->about, strlen(r->about), NULL) : json_object();
    int status =
        json_object_update_new(object, times) || store_returned_describe(store, object) || !theirs
            ? core_fail_memory(err, 4096)
            : DCP_OK;
    if (!status && store->options.private_dirs)
        status = describe_private(store, r, folder, object, err);
    if (!status && (json_object_update_missing(object, theirs) ||
                    !(*out = core_json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(6)))))
        status = core_fail_memory(err, 4096);
    json_decref(theirs);
    json_decref(object);
    return status;
}

/* Collective: the ranks agree to publish. Afterwards it is too late to cancel. In the same vote,
 * they find out whether a rank was slow. */
static int agree_to_publish(dcp_store *store, int status, dcp_report *report, dcp_error *err) {
    comm_vote v = {0};
    uint64_t words[SAVE_SLOW_WORDS];
    io_queue *queue = save_context_of(store)->queue;
    save_slow_vote(&v, store->comm, report->copy_s + report->write_s + report->sync_s,
                   queue ? io_queue_reset_written(queue) : 0, report->bytes, words);
    status = comm_vote_run(store->comm, &v, status, err);
    if (status) return status;
    save_slow_find(words, report);
    if (report->slow_ratio > 0)
        snprintf(report->slow_host, sizeof report->slow_host, "%s",
                 store_host_names_of(store, report->slow_rank));
    return DCP_OK;
}

/* A save in progress. */
typedef struct writing {
    dcp_store *store;
    const save_request *r;
    save_plan *plan;
    move_progress *progress;
    dcp_report *report;
    char folder[PATH_MAX]; /* the step's folder while it is written */
    save_image image;      /* layout global */
    save_sharded *sharded; /* layout sharded */
    /* What all ranks vote on when they agree to write; see begin_step. */
    save_sharing sharing; /* layout global */
    bool uses_moves;      /* layout global: the kept windows can be used */
    bool shares_none;     /* layout sharded: no file can share extents */
} writing;

/* Collective: publishes the step if all ranks have written their files. `status` is this rank's
 * status. The save can be cancelled until the ranks agree. */
static int publish(const writing *w, int status, dcp_error *err) {
    char *members = NULL;
    if (!status) status = move_progress_poll(w->progress, err);
    if (!status) {
        const double seconds = core_clock_now() - w->plan->begin;
        status = about_members(w->store, w->r, w->folder, w->report, seconds, &members, err);
    }
    if (!status) status = store_finish(w->store, w->r->step, members, err);
    free(members);
    status = agree_to_publish(w->store, status, w->report, err);
    return status ? status : store_publish(w->store, w->r->step, err);
}

/* Called at the end of a save: its record becomes the store's history if the step was published. */
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
    const bool shares = save_request_shares(r);
    for (size_t i = 0; i < plan->boxes.n; i++) {
        const plan_box *b = &plan->boxes.boxes[i];
        if (!b->keeper && !(shares && b->replicated)) continue;
        const dcp_tensor *t = &r->sorted[b->tensor]->tensor;
        const dcp_box all = dcp_box_whole(t);
        box_copy copy;
        core_box_copy_between(&copy, t->ndim, dcp_dtype_bytes(t->dtype), &all, &b->box->box);
        move_piece *p = save_image_add(im, b->tensor, b->box, &copy);
        p->own = save_replicas_own(plan->replicas, i);
        if (!shares) continue;
        p->turn = b->turn;
        p->holders = b->holders;
    }
}

static int move_apart(save_image *im, dcp_report *report, dcp_error *err) {
    double start = core_clock_now();
    int status = comm_agree(im->comm, im->mover->move(im->mover->ctx, &im, 1, err), err);
    report->write_s += move_progress_phase(im->progress, DCP_PHASE_WRITE, start, core_clock_now());
    return status;
}

/* Prepares layout global, in which all ranks write one file in the folder. Not collective. */
static int prepare_global(writing *w, dcp_error *err) {
    const save_request *r = w->r;
    save_plan *plan = w->plan;
    save_image *im = &w->image;
    int status = save_image_prepare(im, w->store->comm, &plan->file, w->folder, "state.h5",
                                    plan->boxes.n, w->progress, err);
    if (status) return status;
    im->store = w->store;
    im->is_last = true;
    im->engine = plan->engine;
    im->mover = plan->engine->is_by_position ? r->mover : NULL;
    im->replicas = plan->replicas;
    if (!im->mover) im->moves = &plan->moves[save_request_shares(r)];
    w->uses_moves =
        im->moves && move_window_cache_matches(im->moves, im->comm, plan->file.skeleton.file_bytes);
    add_boxes(im, r, plan);
    if (!move_pieces_have_copies(im->pieces, im->n_pieces))
        return core_fail_memory(err, im->n_pieces * sizeof *im->pieces);
    if (save_request_shares(r)) w->progress->total = supplied_bytes(im);
    if (r->meta && !(im->meta = strdup(r->meta))) return core_fail_memory(err, strlen(r->meta));
    status = save_reuse_prepare(im, w->store, 0, err);
    return status ? status : save_image_begin(im, &w->sharing, err);
}

/* Collective. */
static int write_global(writing *w, dcp_error *err) {
    save_image *im = &w->image;
    const save_request *r = w->r;
    im->uses_moves = w->uses_moves;
    int status = save_image_write(im, &w->sharing, w->report, err);
    if (!status && im->mover) status = move_apart(im, w->report, err);
    if (!status && im->mover) status = save_image_join_sums(im, err);
    if (!status)
        status =
            save_replicas_compare(w->store, r, im->replicas, im->sums[im->layout->blocks], err);
    if (!status && r->mover)
        status = comm_agree(w->store->comm, r->mover->prove(r->mover->ctx, im->sums, err), err);
    if (!status) save_history_record(save_context_of(w->store)->noted, r, im->sums);
    if (!status) w->report->cloned_bytes = im->reuse->bytes;
    return status;
}

/* Not collective. */
static int finish_files(writing *w, dcp_error *err) {
    if (w->r->layout == DCP_LAYOUT_SHARDED) return save_sharded_finish(w->sharded, w->report, err);
    int status = save_image_finish(&w->image, w->report, err);
    if (!status) save_image_note_recycled(&w->image, w->r->step);
    return status;
}

/* Does everything that a rank does alone before the ranks agree to write. */
static int prepare_files(writing *w, dcp_error *err) {
    save_context *kept = save_context_of(w->store);
    save_plan *plan = w->plan;
    int status = move_progress_poll(w->progress, err);
    if (!status && w->r->replicas != DCP_REPLICAS_TRUST && plan->boxes.has_replicas)
        status = save_replicas_make(w->r->sorted, &plan->boxes, save_request_shares(w->r),
                                    kept->memory.staging, &plan->replicas, err);
    if (!status && w->r->is_copied)
        status = save_copy_prove(kept->memory.copy, kept->memory.staging, err);
    if (!status && w->r->is_copied && plan->replicas)
        save_copy_add_sums(kept->memory.copy, plan->replicas);
    if (!status) status = save_history_make(w->store, w->r, plan, &kept->noted, err);
    if (status) return status;
    if (w->r->layout == DCP_LAYOUT_GLOBAL) return prepare_global(w, err);
    return save_sharded_make(w->store, w->r, plan, &w->sharded, &w->shares_none, err);
}

/* Collective. */
static int begin_step(writing *w, dcp_error *err) {
    save_context *kept = save_context_of(w->store);
    int status = DCP_OK;
    const double start = core_clock_now();
    if (!kept->history) status = save_history_recall(w->store, w->r, w->plan, &kept->history, err);
    if (status) return status;
    status = store_begin(w->store, w->r->step, w->folder, err);
    if (!status) status = prepare_files(w, err);
    comm_vote v = {0};
    if (w->r->layout == DCP_LAYOUT_GLOBAL) {
        save_reuse_vote(&v, &w->sharing);
        comm_vote_all(&v, &w->uses_moves);
    } else {
        comm_vote_all(&v, &w->shares_none);
    }
    status = store_begin_agree(w->store, status, w->r->step, &v, err);
    w->report->plan_s += move_progress_phase(w->progress, DCP_PHASE_PLAN, start, core_clock_now());
    return status;
}

/* Collective: writes the data into the files of the folder. */
static int write_sharded(const writing *w, dcp_error *err) {
    return save_sharded_write(w->sharded, w->folder, w->shares_none, w->progress, w->report, err);
}

/* Collective: writes the tables, and publishes the folder under the step's name. Called after the
 * data is written. */
static int finish_step(writing *w, dcp_error *err) {
    dcp_store *store = w->store;
    int status = DCP_OK, finished = finish_files(w, err);
    const double written = core_clock_now();
    if (store->groups) {
        status = comm_agree(store->comm, finished, err);
        if (!status)
            status = redundancy_encode(store->comm, store->groups, w->folder, w->r->step,
                                       &w->progress->stop, err);
        if (status) return status;
        finished = DCP_OK;
    }
    status = publish(w, finished, err);
    w->report->publish_s +=
        move_progress_phase(w->progress, DCP_PHASE_PUBLISH, written, core_clock_now());
    return status;
}

static void free_writing(writing *w) {
    save_image_free(&w->image);
    save_sharded_free(w->sharded);
    save_replicas_free(w->plan->replicas);
    w->plan->replicas = NULL;
}

int save_prepare(dcp_store *store, const save_request *r, dcp_error *err) {
    return save_plan_make(store, r, &save_context_of(store)->plan, err);
}

/* Starts an attempt to write the step. Enters the plan's figures into the report and the progress.
 * Not collective. */
static writing start_writing(dcp_store *store, const save_request *r, move_progress *progress,
                             dcp_report *report) {
    save_plan *plan = save_context_of(store)->plan;
    report->plan_s = move_progress_phase(progress, DCP_PHASE_PLAN, plan->begin, plan->end);
    report->bytes = total_bytes(r);
    report->engine = plan->engine->engine;
    progress->total = kept_bytes(r, plan);
    comm_stop_begin(&progress->stop, store->comm);
    return (writing){.store = store,
                     .r = r,
                     .plan = plan,
                     .progress = progress,
                     .report = report,
                     .image.file.fd = -1};
}

/* Collective: cleans up after an attempt that ended with `status`, and returns the cause of a
 * failure. */
static int end_writing(writing *w, int status, bool began, dcp_error *err) {
    dcp_store *store = w->store;
    const double begin = w->plan->begin;
    note_saved(store, status, w->r, w->report);
    free_writing(w);
    if (status) {
        if (began) save_context_reset(save_context_of(store), status);
        if (status != DCP_ERR_STATE || store->has_tmp) store_rollback(store, w->r->step);
        status = store_find_cause(store, status, err);
    }
    w->report->total_s = move_progress_phase(w->progress, DCP_PHASE_ALL, begin, core_clock_now());
    return status;
}

int save_run(dcp_store *store, const save_request *r, move_progress *progress, dcp_report *report,
             dcp_error *err) {
    const move_progress first = *progress;
    const bool is_global = r->layout == DCP_LAYOUT_GLOBAL;
    dcp_error why = {0};
    uint64_t from = 0;
    int status, made = r->make_room;
    for (;;) {
        writing w = start_writing(store, r, progress, report);
        status = begin_step(&w, &why);
        const bool began = !status;
        if (!status) status = is_global ? write_global(&w, &why) : write_sharded(&w, &why);
        if (!status) status = finish_step(&w, &why);
        status = end_writing(&w, status, began, &why);
        if (status != DCP_ERR_NO_SPACE || !made) break;
        /* no step is removed for a save that a rank has cancelled meanwhile */
        int failed = comm_agree(store->comm, move_progress_status(progress, err), err);
        if (!failed) failed = store_free_space(store, &from, &made, err);
        if (failed) return failed;
        if (!made) {
            store_explain_no_space(store, &why);
            break;
        }
        *progress = first; /* a new attempt counts its bytes from 0 */
        *report = (dcp_report)DCP_REPORT_INIT;
    }
    if (status && err) *err = why;
    return status;
}
