/* Which store gets a save, and when the others are filled. Ranks decide alike: by what they all
 * know, or by one all-reduce over who is still busy. Stores are filled from the save in flight
 * after it has been waited for, so the caller's thread changes a store's object only while no save
 * of it is in flight. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "core/sized.h"
#include "plan/agreement.h"
#include "save/context.h"
#include "store/retention.h"
#include "tiers/drain.h"

static int is_due(const tier *t, uint64_t step) {
    if ((t->has_step && t->step == step) || (t->drain && t->drain->step == step)) return 0;
    return t->owed || (t->given.every && step % t->given.every == 0);
}

int dcp_tiers_is_due(const dcp_tiers *tiers, uint64_t step) {
    int due = 0;
    for (size_t i = 0; i < tiers->n; i++) due |= is_due(&tiers->list[i], step);
    return due;
}

int dcp_tiers_has(const dcp_tiers *tiers, size_t i, uint64_t step) {
    return i < tiers->n && tiers->list[i].has_step && tiers->list[i].step == step;
}

/* Lends the store the staging memory, or takes it back. */
static void swap_staging(dcp_tiers *tiers, tier *t) {
    save_context_swap_staging(t->store, &tiers->staging);
}

void dcp_tiers_fence(dcp_tiers *tiers) {
    if (tiers) dcp_save_fence(tiers->flight);
}

int dcp_tiers_is_done(dcp_tiers *tiers) {
    if (!tiers) return DCP_ERR_ARG;
    return tiers->flight ? dcp_save_is_done(tiers->flight) : 1;
}

int dcp_tiers_wait(dcp_tiers *tiers, dcp_report *report, dcp_error *err) {
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_wait: tiers is NULL");
    if (!tiers->flight) return DCP_OK;
    dcp_report own = DCP_REPORT_INIT;
    int status = dcp_save_wait(tiers->flight, &own, err);
    tiers->flight = NULL;
    swap_staging(tiers, tiers->flight_tier);
    tiers_note(tiers->flight_tier, tiers->flight_step, status);
    for (size_t i = 0; i < tiers->n; i++) {
        tier *t = &tiers->list[i];
        if (!t->waiting) continue;
        t->waiting = 0;
        if (status)
            t->owed = 1;
        else
            tiers_drain_start(tiers, t, tiers->flight_tier);
    }
    if (!status) status = core_sized_check(report, sizeof own, "DCP_REPORT_INIT", err);
    if (!status) core_sized_give(report, &own, sizeof own);
    return status;
}

/* Ends the save in flight, for a caller who asks for another one. */
static int settle_flight(dcp_tiers *tiers, dcp_error *err) {
    dcp_error why;
    if (!tiers->flight) return DCP_OK;
    int status = dcp_tiers_wait(tiers, NULL, &why);
    if (status) tiers_warn(tiers, tiers->flight_tier, tiers->flight_step, &why);
    if (status == DCP_ERR_COMM && err) *err = why;
    return status == DCP_ERR_COMM ? status : DCP_OK;
}

/* busy[i]: any rank is still filling store i. */
static int find_busy(dcp_tiers *tiers, uint64_t *busy, dcp_error *err) {
    int any = 0;
    for (size_t i = 0; i < tiers->n; i++) {
        any |= tiers->list[i].drain != NULL;
        busy[i] = !tiers_drain_is_done(&tiers->list[i]);
    }
    return any ? comm_allreduce(tiers->comm, busy, tiers->n, DCP_REDUCE_MAX, err) : DCP_OK;
}

typedef enum tiers_call { IN_FLIGHT, NOW, NOW_AND_LAST } tiers_call;

/* Collective. Which stores are due depends on the step, so ranks must mean the same one. A save
 * that is in flight on any rank refuses on all. */
static int agree_on_turn(dcp_tiers *tiers, int status, uint64_t step, dcp_busy when_busy,
                         tiers_call call, dcp_error *err) {
    const plan_value values[] = {
        {"the step", step, 0},
        {"when_busy", when_busy, 0},
        {"the call: 0 is dcp_tiers_save_async, 1 dcp_tiers_save, 2 that with also_last", call, 0},
    };
    if (!status && when_busy == DCP_BUSY_REFUSE && call == IN_FLIGHT &&
        dcp_tiers_is_done(tiers) != 1)
        status = core_fail(err, DCP_ERR_BUSY,
                           "a save is in flight: wait for it, or let this one wait (when_busy)");
    return plan_agree(tiers->comm, status, values, sizeof values / sizeof *values, err);
}

/* Where a run went back, later steps must not count as the newest ones of any store. So they are
 * set aside in all stores first. A single store does so at its publication. */
static int set_aside(dcp_tiers *tiers, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < tiers->n && tiers->n > 1 && !tiers->set_aside && !status; i++)
        if (!tiers->list[i].drain) status = store_set_aside(tiers->list[i].store, err);
    if (!status) tiers->set_aside = 1;
    return status;
}

/* Whether the store is due, and what was being written to it has ended; `busy`: it has not. */
static int takes_part(dcp_tiers *tiers, tier *t, uint64_t step, int busy, dcp_busy when_busy) {
    if (!busy) tiers_drain_finish(tiers, t);
    if (!is_due(t, step) || (busy && when_busy == DCP_BUSY_REFUSE)) return 0;
    tiers_drain_finish(tiers, t);
    return is_due(t, step);
}

/* Keeps what the save was given, for those that are filled from it. */
static int keep_options(dcp_tiers *tiers, const dcp_save_options *options, dcp_error *err) {
    char *about = options->about_json ? strdup(options->about_json) : NULL;
    int status = DCP_OK;
    if (options->about_json && !about) status = core_fail_memory(err, strlen(options->about_json));
    free((char *)tiers->given.about_json);
    tiers->given = *options;
    tiers->given.about_json = about;
    return comm_agree(tiers->comm, status, err);
}

static dcp_save_options options_of(const tier *t, const dcp_save_options *given) {
    dcp_save_options own = *given;
    own.layout = t->given.is_private ? DCP_LAYOUT_SHARDED : t->given.layout;
    own.shards = 0;
    own.when_busy = DCP_BUSY_WAIT;
    return own;
}

/* Of the waiting stores the fastest that did not fail last time. It no longer waits then. */
static tier *take_first(dcp_tiers *tiers) {
    tier *first = NULL;
    for (size_t i = 0; i < tiers->n; i++) {
        tier *t = &tiers->list[i];
        if (t->waiting && (!first || (first->failed && !t->failed))) first = t;
    }
    if (first) first->waiting = 0;
    return first;
}

/* Collective: everything that comes before the save itself. *first: the tier that gets it, NULL
 * where none does; others that are due are waiting for it. */
static int take_turn(dcp_tiers *tiers, int status, uint64_t step, dcp_busy when_busy, tier **first,
                     dcp_error *err) {
    uint64_t busy[DCP_MAX_TIERS];
    status = agree_on_turn(tiers, status, step, when_busy, IN_FLIGHT, err);
    if (!status) status = settle_flight(tiers, err);
    if (!status) status = set_aside(tiers, err);
    if (!status) status = find_busy(tiers, busy, err);
    for (size_t i = 0; i < tiers->n && !status; i++) {
        tier *t = &tiers->list[i];
        t->waiting = takes_part(tiers, t, step, busy[i] != 0, when_busy);
    }
    if (!status) *first = take_first(tiers);
    return status;
}

int dcp_tiers_prepare(dcp_tiers *tiers, const dcp_state *state, const dcp_save_options *options,
                      dcp_error *err) {
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_prepare: tiers is NULL");
    int busy = tiers->flight != NULL;
    for (size_t i = 0; i < tiers->n; i++) busy |= tiers->list[i].drain != NULL;
    if (busy)
        return core_fail(
            err, DCP_ERR_STATE,
            "dcp_tiers_prepare: a save is in flight or a store is being filled: call it "
            "before the first save");
    swap_staging(tiers, tiers->list);
    const int status = dcp_save_prepare(tiers->list[0].store, state, options, err);
    swap_staging(tiers, tiers->list);
    return status;
}

int dcp_tiers_save_async(dcp_tiers *tiers, uint64_t step, const dcp_state *state, const char *json,
                         const dcp_save_options *options, dcp_error *err) {
    dcp_save_options given;
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_save_async: tiers is NULL");
    tier *first = NULL;
    int status = core_sized_take(&given, sizeof given, options, "DCP_SAVE_OPTIONS_INIT", err);
    status = take_turn(tiers, status, step, given.when_busy, &first, err);
    if (status || !first) return status;
    status = keep_options(tiers, &given, err);
    const dcp_save_options own = options_of(first, &given);
    tiers->flight_tier = first;
    tiers->flight_step = step;
    swap_staging(tiers, first);
    if (!status)
        status = dcp_save_async(first->store, step, state, json, &own, &tiers->flight, err);
    if (status) swap_staging(tiers, first);
    for (size_t i = 0; i < tiers->n && status; i++) tiers->list[i].waiting = 0;
    return status;
}

int dcp_tiers_save(dcp_tiers *tiers, uint64_t step, const dcp_state *state, const char *json,
                   const dcp_save_options *options, int also_last, dcp_report *report,
                   dcp_error *err) {
    dcp_save_options given;
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_save: tiers is NULL");
    dcp_error why;
    const tier *last = &tiers->list[tiers->n - 1], *failed = NULL;
    int saved = 0, failure = DCP_OK;
    int status = core_sized_take(&given, sizeof given, options, "DCP_SAVE_OPTIONS_INIT", err);
    if (!status) status = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    status =
        agree_on_turn(tiers, status, step, given.when_busy, also_last ? NOW_AND_LAST : NOW, err);
    if (status) return status;
    status = settle_flight(tiers, err);
    for (size_t i = 0; i < tiers->n; i++) tiers_drain_finish(tiers, &tiers->list[i]);
    if (!status) status = set_aside(tiers, err);
    for (size_t i = 0; i < tiers->n && !status; i++) {
        tier *t = &tiers->list[i];
        if (dcp_tiers_has(tiers, i, step) || !(is_due(t, step) || (also_last && t == last)))
            continue;
        if (failed) tiers_warn(tiers, failed, step, &why);
        failed = NULL;
        const dcp_save_options own = options_of(t, &given);
        swap_staging(tiers, t);
        int outcome = dcp_save(t->store, step, state, json, &own, report, &why);
        swap_staging(tiers, t);
        tiers_note(t, step, outcome);
        saved += !outcome;
        if (outcome) failed = t, failure = outcome;
        if (outcome == DCP_ERR_COMM) break;
    }
    if (!failed) return status;
    if (failure != DCP_ERR_COMM && saved && !(also_last && failed == last)) {
        tiers_warn(tiers, failed, step, &why);
        return DCP_OK;
    }
    if (err) *err = why;
    return failure;
}
