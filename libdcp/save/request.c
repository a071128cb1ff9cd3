/* Invalid arguments are rejected here, before anything is planned. */
#include "save/request.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/checks.h"
#include "core/fail.h"
#include "core/json.h"
#include "format/index.h"
#include "io/queue.h"
#include "move/engine.h"

enum {
    ABOUT_BYTES = 1 << 20, /* maximum for the caller's members of about.json */
    OWN_VALUES = 2,        /* in meta: format and step */
};

/* Makes the checkpoint's JSON: the caller's members and the library's. */
static int make_meta(const char *json, uint64_t step, char **out, dcp_error *err) {
    json_t *object;
    uint64_t values;
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
            core_fail(err, DCP_ERR_ARG,
                      "json has %zu bytes, but may have at most %u: keep large data as tensors",
                      strlen(*out), MAX_JSON_BYTES);
    else if ((values = core_json_count_values(*out, strlen(*out)) - OWN_VALUES) >
             CORE_JSON_MOST_VALUES)
        status =
            core_fail(err, DCP_ERR_ARG,
                      "json has %llu values, but may have at most %u: keep large data as tensors",
                      (unsigned long long)values, CORE_JSON_MOST_VALUES);
    json_decref(object);
    return status;
}

static int keep_about(save_request *r, const char *about, dcp_error *err) {
    json_t *object;
    if (!about) return DCP_OK;
    size_t bytes = strlen(about);
    if (bytes > ABOUT_BYTES)
        return core_fail(err, DCP_ERR_ARG, "about_json has %zu bytes, but may have at most %d",
                         bytes, ABOUT_BYTES);
    const int status = core_json_parse_object(about, bytes, &object, err);
    if (status == DCP_ERR_ARG) core_fail(err, status, "about_json is not a JSON object");
    if (status) return status;
    json_decref(object);
    r->about = strdup(about);
    return r->about ? DCP_OK : core_fail_memory(err, bytes);
}

uint64_t save_request_copy_bytes(const dcp_save_options *options) {
    const uint64_t buffers = (uint64_t)IO_SLOTS * IO_SLOT_BYTES;
    uint64_t staging_bytes = options->staging_bytes;
    if (staging_bytes == DCP_STAGING_NONE) return 0;
    if (!staging_bytes) staging_bytes = DCP_STAGING_DEFAULT;
    return staging_bytes > buffers ? staging_bytes - buffers : 0;
}

int save_request_make(const dcp_store *store, uint64_t step, const dcp_state *state,
                      const char *json, const dcp_save_options *options, save_request *r,
                      dcp_error *err) {
    if (!state) return core_fail(err, DCP_ERR_ARG, "dcp_save: a state is needed");
    r->progress = (move_progress){.on_progress = options->on_progress,
                                  .progress_ctx = options->progress_ctx,
                                  .on_phase = options->on_phase,
                                  .phase_ctx = options->phase_ctx,
                                  .stop = {.should_stop = options->stop,
                                           .ctx = options->stop_ctx,
                                           .what = "the save",
                                           .outcome = "nothing is published"},
                                  .staging_bytes = save_request_copy_bytes(options)};
    r->engine = options->engine;
    r->replicas = options->replicas;
    r->make_room = options->make_room;
    r->copy_bytes = options->copy_bytes;
    int status = move_engine_check(r->engine, err);
    if (status) return status;
    if (core_option_check_choice("replicas", (int)options->replicas, DCP_REPLICAS_TRUST, err) ||
        core_option_check_choice("layout", (int)options->layout, DCP_LAYOUT_SHARDED, err) ||
        core_option_check_choice("when_busy", (int)options->when_busy, DCP_BUSY_REFUSE, err))
        return DCP_ERR_ARG;
    if (options->layout == DCP_LAYOUT_SHARDED) {
        r->layout = DCP_LAYOUT_SHARDED;
        r->shards = options->shards ? options->shards : store->comm->size;
    }
    if (options->shards < 0 || options->shards > 99999)
        return core_fail(err, DCP_ERR_ARG, "%d shards: from 1 to 99999 are possible",
                         options->shards);
    if (store->options.private_dirs && r->layout != DCP_LAYOUT_SHARDED)
        return core_fail_path(
            core_fail(err, DCP_ERR_UNSUPPORTED,
                      "%s is a private store: only layout sharded can be saved into it, with one "
                      "file per rank",
                      store->dir),
            store->dir, err);
    if (store->groups && r->shards != store->comm->size)
        return core_fail_path(
            core_fail(err, DCP_ERR_ARG,
                      "%s: a store with redundancy requires as many shards as ranks: %d, not %d",
                      store->dir, store->comm->size, r->shards),
            store->dir, err);
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

bool save_request_shares(const save_request *r) {
    return r->layout == DCP_LAYOUT_GLOBAL && r->replicas != DCP_REPLICAS_WARN;
}
