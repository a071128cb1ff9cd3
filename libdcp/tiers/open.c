/* Opening and closing a list of stores. The first store usually gets saves from memory, and shares
 * the caller's communicator. Every other store has its own communicator, since it is filled while
 * saves go into the first store. */
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/checks.h"
#include "core/fail.h"
#include "format/folder.h"
#include "store/returned.h"
#include "tiers/drain.h"

static int copy_tier(const dcp_tier *given, int rank, tier *out, dcp_error *err) {
    int status = tiers_given_path(given, rank, &out->path, err);
    if (!status) status = tiers_given_domain(given, rank, &out->domain, err);
    if (status) return status;
    out->given = *given;
    out->given.domain = NULL;
    out->given.path = strdup(given->path);
    out->given.redundancy = strdup(given->redundancy ? given->redundancy : "none");
    out->given.keep_metric = given->keep_metric ? strdup(given->keep_metric) : NULL;
    if (out->given.path && out->given.redundancy && !given->keep_metric == !out->given.keep_metric)
        return DCP_OK;
    return core_fail_memory(err, strlen(given->path));
}

static int make_tiers(dcp_comm *comm, const dcp_tier *list, size_t n,
                      const dcp_tiers_options *options, dcp_tiers **out, dcp_error *err) {
    dcp_tiers *tiers = *out = calloc(1, sizeof *tiers);
    if (!tiers) return core_fail_memory(err, sizeof *tiers);
    tiers->comm = comm;
    tiers->process = getpid();
    tiers->log = options->log;
    tiers->log_ctx = options->log_ctx;
    tiers->on_filled = options->on_filled;
    tiers->filled_ctx = options->filled_ctx;
    tiers->on_fill_progress = options->on_fill_progress;
    tiers->loads_only = options->loads_only;
    tiers->fill_progress_ctx = options->fill_progress_ctx;
    tiers->list = calloc(n, sizeof *tiers->list);
    tiers->before = calloc(n, sizeof *tiers->before);
    if (!tiers->list || !tiers->before) return core_fail_memory(err, n * sizeof *tiers->list);
    tiers->n = n;
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = copy_tier(&list[i], comm->rank, &tiers->list[i], err);
    return status;
}

static int open_tier(dcp_tiers *tiers, size_t i, const dcp_tiers_options *options, dcp_error *err) {
    tier *t = &tiers->list[i];
    const dcp_store_options store = {.size = sizeof store,
                                     .keep = t->given.keep,
                                     .replace = options->replace,
                                     .private_dirs = t->given.is_private,
                                     .redundancy = t->given.redundancy,
                                     .domain = t->domain,
                                     .tool = options->tool,
                                     .log = options->log,
                                     .log_ctx = options->log_ctx,
                                     .take_over = options->take_over,
                                     .stripe_count = t->given.stripe_count,
                                     .stripe_bytes = t->given.stripe_bytes,
                                     .keep_every = t->given.keep_every,
                                     .keep_seconds = t->given.keep_seconds,
                                     .keep_best = t->given.keep_best,
                                     .keep_highest = t->given.keep_highest,
                                     .keep_metric = t->given.keep_metric};
    int status = i ? comm_duplicate(tiers->comm, &t->comm, err) : DCP_OK;
    if (status) return status;
    return dcp_store_open(tiers_comm_of(tiers, t), t->path, &store, &t->store, err);
}

static void warn_of_others(const dcp_tiers *tiers, const store_lineage *known,
                           const store_lineage *run) {
    for (size_t i = 0; i < tiers->n; i++)
        if (known[i].id && known[i].id != run->id)
            tiers_log(tiers, DCP_LOG_WARNING,
                      "%s holds steps of another run than the other stores: a load uses the newest "
                      "step of all stores, whichever run saved it",
                      tiers->list[i].store->dir);
}

/* Collective: sets *after to the number after the newest step of the stores that have the run's
 * latest save; 0: these stores have no step. */
static int find_newest_of_run(const dcp_tiers *tiers, const store_lineage *known,
                              const store_lineage *run, uint64_t *after, dcp_error *err) {
    char path[PATH_MAX];
    uint64_t step;
    *after = 0;
    for (size_t i = 0; i < tiers->n; i++) {
        const dcp_store *store = tiers->list[i].store;
        if (known[i].id == run->id && known[i].last == run->last && store_leads(store) &&
            !format_list_newest(store->dir, path, &step, NULL) && step + 1 > *after)
            *after = step + 1;
    }
    return comm_allreduce(tiers->comm, after, 1, DCP_REDUCE_MAX, err);
}

/* Collective: sets `known` to the stores' lineages, and *run to the one of the latest save. Rank 0
 * knows all lineages, since it is a leader in every store. */
static int collect_lineages(const dcp_tiers *tiers, store_lineage *known, store_lineage *run,
                            dcp_error *err) {
    const size_t n = tiers->n;
    for (size_t i = 0; i < n; i++) known[i] = tiers->list[i].store->lineage;
    const int status = comm_broadcast(tiers->comm, known, n * sizeof *known, 0, err);
    *run = (store_lineage){0};
    for (size_t i = 0; i < n; i++) store_lineage_update(run, &known[i]);
    return status;
}

/* Collective: finds the latest save in all stores. If stores were absent when the run went back to
 * an older step, sets aside their steps that the lineage of the latest save rules out. */
static int reconcile_lineages(dcp_tiers *tiers, dcp_error *err) {
    store_lineage known[DCP_MAX_TIERS], run;
    uint64_t after = 0;
    bool has_news = false;
    const size_t n = tiers->n;
    if (n < 2) return DCP_OK;
    int status = collect_lineages(tiers, known, &run, err);
    for (size_t i = 0; i < n && !status; i++) has_news |= store_returned_has_news(&known[i], &run);
    for (size_t i = 0; i < n && has_news && !status; i++)
        status = store_returned_learn(tiers->list[i].store, err);
    if (!status && has_news) status = collect_lineages(tiers, known, &run, err);
    if (status) return status;
    warn_of_others(tiers, known, &run);
    if (!run.id) run.id = store_returned_id(tiers->list[0].store);
    status = find_newest_of_run(tiers, known, &run, &after, err);
    for (size_t i = 0; i < n && !status; i++)
        status = store_returned_set_aside(tiers->list[i].store, &run, after, err);
    return status;
}

int dcp_tiers_open(dcp_comm *comm, const dcp_tier *list, size_t n, const dcp_tiers_options *options,
                   dcp_tiers **out, dcp_error *err) {
    dcp_tiers_options own;
    dcp_tier given[DCP_MAX_TIERS];
    dcp_tiers *tiers = NULL;
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_open: comm is NULL");
    int status = tiers_given_agree(comm, list, n, given, err);
    if (status) return status;
    status = core_sized_copy_in(&own, sizeof own, options, "DCP_TIERS_OPTIONS_INIT", err);
    if (!status) status = make_tiers(comm, given, n, &own, &tiers, err);
    if (!status && !out) status = core_fail(err, DCP_ERR_ARG, "dcp_tiers_open: out is NULL");
    status = comm_agree(comm, status, err);
    for (size_t i = 0; i < n && !status; i++) status = open_tier(tiers, i, &own, err);
    if (!status) status = reconcile_lineages(tiers, err);
    if (status) {
        dcp_tiers_close(tiers);
        return status;
    }
    tiers_number_alike(tiers);
    *out = tiers;
    return DCP_OK;
}

static void close_tier(tier *t) {
    dcp_store_close(t->store);
    free(t->path);
    free(t->domain);
    free((char *)t->given.path);
    free((char *)t->given.redundancy);
    free((char *)t->given.keep_metric);
}

/* Waits for the save in flight, and until no store is being filled. A forked process must not do
 * this, since it has none of the threads that do this work. */
static void end_fillings(dcp_tiers *tiers) {
    dcp_error err;
    tier *flying = tiers->flight_tier;
    if (dcp_tiers_wait(tiers, NULL, &err)) tiers_warn(tiers, flying, tiers->flight_step, &err);
    for (size_t i = 0; i < tiers->n; i++) tiers_drain_finish(tiers, &tiers->list[i]);
}

void dcp_tiers_close(dcp_tiers *tiers) {
    if (!tiers) return;
    const bool is_own = tiers->process == getpid();
    if (is_own) end_fillings(tiers);
    for (size_t i = 0; i < tiers->n; i++) {
        dcp_comm *comm = tiers->list[i].comm;
        close_tier(&tiers->list[i]);
        if (is_own) dcp_comm_destroy(comm);
    }
    if (is_own) save_memory_free(&tiers->memory);
    free((char *)tiers->given.about_json);
    free(tiers->list);
    free(tiers->before);
    free(tiers);
}

int dcp_tiers_survives(const dcp_tiers *tiers, size_t i) {
    return tiers && i < tiers->n ? dcp_store_survives(tiers->list[i].store) : 0;
}

int dcp_tiers_rebuilt(const dcp_tiers *tiers) { return tiers ? tiers->rebuilt : 0; }
