/* dcp_save: plan, write, publish. Whatever fails, all ranks leave with the same status and the
 * temporary folder goes. */
#include "save/save.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/fail.h"
#include "core/json.h"
#include "device/staging.h"
#include "redundancy/redundancy.h"
#include "save/snapshot.h"
#include "step/about.h"

#define ABOUT_BYTES (1 << 20) /* of the caller's members of about.json */

/* The checkpoint's JSON: the caller's with the library's members. */
static int make_meta(const char *json, uint64_t step, char **out, dcp_error *err) {
    json_t *object;
    int status = core_json_parse_object(json, json ? strlen(json) : 0, &object, err);
    if (status) return status;
    json_object_del(object, "shard");
    if (step > INT64_MAX)
        status = core_fail(err, DCP_ERR_ARG, "step %llu is too large", (unsigned long long)step);
    else if (json_object_set_new(object, "format", json_integer(FORMAT_VERSION)) ||
             json_object_set_new(object, "step", json_integer((json_int_t)step)) ||
             !(*out = core_json_canonical(object)))
        status = core_fail_memory(err, json ? strlen(json) : 64);
    else if (strlen(*out) > MAX_JSON_BYTES)
        status =
            core_fail(err, DCP_ERR_ARG, "json: %zu bytes, at most %u: keep large data as tensors",
                      strlen(*out), MAX_JSON_BYTES);
    json_decref(object);
    return status;
}

static int keep_about(save_request *r, const char *about, dcp_error *err) {
    json_t *object;
    if (!about) return DCP_OK;
    size_t bytes = strlen(about);
    if (bytes > ABOUT_BYTES)
        return core_fail(err, DCP_ERR_ARG, "about_json: %zu bytes, at most %d are kept", bytes,
                         ABOUT_BYTES);
    if (core_json_parse_object(about, bytes, &object, err))
        return core_fail(err, DCP_ERR_ARG, "about_json is not a JSON object");
    json_decref(object);
    r->about = strdup(about);
    return r->about ? DCP_OK : core_fail_memory(err, bytes);
}

/* What may be copied at a fence, beside the queue's buffers. */
static uint64_t copy_bytes(uint64_t staging_bytes) {
    const uint64_t buffers = (uint64_t)IO_SLOTS * IO_SLOT_BYTES;
    if (staging_bytes == DCP_STAGING_NONE) return 0;
    if (!staging_bytes) staging_bytes = DCP_STAGING_DEFAULT;
    return staging_bytes > buffers ? staging_bytes - buffers : 0;
}

int save_request_make(const dcp_store *store, uint64_t step, const dcp_state *state,
                      const char *json, const dcp_save_options *options, save_request *r,
                      dcp_error *err) {
    if (!state) return core_fail(err, DCP_ERR_ARG, "dcp_save: a state is needed");
    const dcp_save_options plain = {0};
    if (!options) options = &plain;
    r->progress = (save_progress){.on_progress = options->on_progress,
                                  .progress_ctx = options->progress_ctx,
                                  .on_phase = options->on_phase,
                                  .phase_ctx = options->phase_ctx,
                                  .staging_bytes = copy_bytes(options->staging_bytes)};
    r->engine = options->engine;
    int status = plan_check_engine(r->engine, err);
    if (status) return status;
    if ((unsigned)options->layout > DCP_LAYOUT_SHARDED)
        return core_fail(err, DCP_ERR_ARG, "layout %d does not exist", (int)options->layout);
    if (options->layout == DCP_LAYOUT_SHARDED) {
        r->layout = DCP_LAYOUT_SHARDED;
        r->shards = options->shards ? options->shards : store->comm->size;
        if (r->shards < 0 || r->shards > 99999)
            return core_fail(err, DCP_ERR_ARG, "%d shards: from 1 to 99999 are possible",
                             r->shards);
    }
    if (store->options.private_dirs && r->layout != DCP_LAYOUT_SHARDED)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "%s is a private store: only layout sharded can be saved into it, a file "
                         "a rank",
                         store->dir);
    if (store->groups && r->shards != store->comm->size)
        return core_fail(err, DCP_ERR_ARG,
                         "%s: a store with redundancy takes as many shards as ranks: %d, not %d",
                         store->dir, store->comm->size, r->shards);
    r->step = step;
    r->n = dcp_state_tensors(state);
    r->sorted = core_state_sorted(state);
    if (!r->sorted) return core_fail_memory(err, r->n * sizeof *r->sorted);
    status = keep_about(r, options->about_json, err);
    if (status) return status;
    return store->comm->rank == 0 ? make_meta(json, step, &r->meta, err) : DCP_OK;
}

void save_request_free(save_request *r) {
    free(r->sorted);
    free(r->meta);
    free(r->about);
}

/* What this rank keeps, and so writes or hands on. */
static uint64_t kept_bytes(const save_request *r, const struct save_layout *plan) {
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
        failed = json_object_set_new(object, "shards", step_about_shards(folder, r->shards));
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    json_t *theirs = r->about ? json_loads(r->about, 0, NULL) : NULL;
    if (object && theirs) json_object_update_missing(object, theirs);
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(theirs);
    json_decref(object);
    return text;
}

static int publish(dcp_store *store, const save_request *r, const char *folder,
                   const dcp_report *report, double start, dcp_error *err) {
    char *members = about_members(store, r, folder, report, core_clock_now() - start);
    int status = comm_agree(store->comm, members ? DCP_OK : core_fail_memory(err, 1024), err);
    if (!status) status = store_publish(store, r->step, members, err);
    free(members);
    return status;
}

/* Collective: into the folder, and from there under the step's name. */
static int write_step(dcp_store *store, const save_request *r, const struct save_layout *plan,
                      const char *folder, save_progress *progress, double start, dcp_report *report,
                      dcp_error *err) {
    int status = history_recall(store, r, plan, err);
    if (!status)
        status = comm_agree(store->comm, history_make(store, r, plan, &store->noted, err), err);
    if (!status)
        status = (r->layout == DCP_LAYOUT_SHARDED ? save_sharded : save_global)(
            store, r, plan, folder, progress, report, err);
    double written = core_clock_now();
    if (!status && store->groups)
        status = redundancy_encode(store->comm, store->groups, folder, r->step, err);
    if (!status) status = publish(store, r, folder, report, start, err);
    history_keep(store, status, r, report);
    report->publish_s +=
        save_progress_phase(progress, DCP_PHASE_PUBLISH, written, core_clock_now());
    return status;
}

/* What the store keeps from save to save is not trusted after a failure; page-locked memory is kept
 * where it was not the device that failed, since to take it again would stop a step of training. */
static void roll_back(dcp_store *store, uint64_t step, int status) {
    io_queue_destroy(store->queue); /* it remembers its first failure */
    store->queue = NULL;
    if (status == DCP_ERR_DEVICE) {
        device_staging_close(store->staging);
        store->staging = NULL;
    } else if (store->staging) {
        device_staging_cut(store->staging, STAGING_LEAST);
    }
    store_rollback(store, step);
}

int save_run(dcp_store *store, const save_request *r, save_progress *progress, dcp_report *report,
             dcp_error *err) {
    char folder[PATH_MAX];
    struct save_layout *plan;
    double start = core_clock_now();
    int status = save_plan(store, r, &plan, err);
    if (status) return status;
    report->bytes = total_bytes(r);
    report->engine = plan->engine;
    progress->total = kept_bytes(r, plan);
    status = store_begin(store, r->step, folder, err);
    if (status) {
        if (status != DCP_ERR_STATE) store_rollback(store, r->step);
        return status;
    }
    report->plan_s = save_progress_phase(progress, DCP_PHASE_PLAN, start, core_clock_now());
    status = write_step(store, r, plan, folder, progress, start, report, err);
    if (status) roll_back(store, r->step, status);
    report->total_s = save_progress_phase(progress, DCP_PHASE_ALL, start, core_clock_now());
    return status;
}

int dcp_save_prepare(dcp_store *store, const dcp_state *state, const dcp_save_options *options,
                     dcp_error *err) {
    if (!store || !state)
        return core_fail(err, DCP_ERR_ARG, "dcp_save_prepare: a store and a state are needed");
    if (store->saving)
        return core_fail(err, DCP_ERR_STATE,
                         "dcp_save_prepare: %s: a save is in flight: wait for it first",
                         store->dir);
    return snapshot_open(store, state, copy_bytes(options ? options->staging_bytes : 0), err);
}

int dcp_save(dcp_store *store, uint64_t step, const dcp_state *state, const char *json,
             const dcp_save_options *options, dcp_report *report, dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_save: a store is needed");
    save_request r = {0};
    dcp_report figures = {0};
    int status = save_turn(store, SAVE_NOW, options, err);
    if (!status) status = save_request_make(store, step, state, json, options, &r, err);
    if (!status) status = snapshot_prepare(store, state, r.progress.staging_bytes, err);
    status = save_agree(store, status, SAVE_NOW, options, err);
    save_progress progress = r.progress;
    if (!status) status = save_run(store, &r, &progress, &figures, err);
    save_request_free(&r);
    if (!status && report) *report = figures;
    return status;
}
