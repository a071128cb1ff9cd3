/* Decides which store gets a save, and when the others are filled. All ranks make the same
 * decisions, from values that all of them know and from one all-reduce about which stores are still
 * being filled. Other stores are filled from a save after it was waited for, by the thread that
 * uses the list or by another one (dcp_tiers_wait_in_thread), so a store is changed only while no
 * save into it is in flight. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/checks.h"
#include "core/fail.h"
#include "save/context.h"
#include "store/publication.h"
#include "tiers/drain.h"
#include "tiers/tier_list.h"

static bool is_due(const dcp_tiers *tiers, const tier *t, uint64_t step) {
    const bool gets_step = t->drain && t->drain->step == step && !tiers_is_abandoned(tiers, step);
    if (gets_step || tiers_has_step(tiers, t, step)) return false;
    return tiers_is_overdue(tiers, t) || (t->given.every && step % t->given.every == 0);
}

int dcp_tiers_is_due(const dcp_tiers *tiers, uint64_t step) {
    bool due = false;
    for (size_t i = 0; tiers && i < tiers->n; i++)
        due |= is_due(tiers, tiers_agreed(tiers, i), step);
    return due;
}

/* Lends the store the list's memory for saves, or takes it back. */
static void swap_memory(dcp_tiers *tiers, tier *t) {
    save_context_swap_memory(t->store, &tiers->memory);
}

void dcp_tiers_fence(dcp_tiers *tiers) {
    if (tiers) dcp_save_fence(tiers->flight);
}

int dcp_tiers_fence_within(dcp_tiers *tiers, double seconds) {
    return tiers ? dcp_save_fence_within(tiers->flight, seconds) : 1;
}

int dcp_tiers_is_done(dcp_tiers *tiers) {
    if (!tiers) return DCP_ERR_ARG;
    return tiers->flight ? dcp_save_is_done(tiers->flight) : 1;
}

int dcp_tiers_is_filled(dcp_tiers *tiers) {
    if (!tiers) return DCP_ERR_ARG;
    int filled = 1;
    for (size_t i = 0; i < tiers->n && tiers->process == getpid(); i++)
        filled &= tiers_drain_is_done(&tiers->list[i]);
    return filled;
}

/* Collective over the store's own communicator, if it has one: starts to fill a store that waits
 * for the step that was saved, unless the run has gone back to an earlier step on any rank: the
 * others may learn of that only after this call. */
static void fill_waiting(dcp_tiers *tiers, tier *t, bool is_own_thread) {
    uint64_t is_past = tiers_is_abandoned(tiers, tiers->flight_step);
    comm_allreduce(tiers_comm_of(tiers, t), &is_past, 1, DCP_REDUCE_MAX, NULL);
    if (!is_past)
        tiers_drain_start(tiers, t, tiers->flight_tier, tiers->flight_step, is_own_thread);
    t->waiting = false;
}

/* Fills the stores that dcp_tiers_wait_in_thread could not fill. */
static void fill_the_rest(dcp_tiers *tiers) {
    for (size_t i = 0; i < tiers->n; i++)
        if (tiers->list[i].waiting) fill_waiting(tiers, &tiers->list[i], true);
}

/* Ends the save in flight, and starts to fill the stores that have a communicator of their own. */
static int end_flight(dcp_tiers *tiers, bool is_own_thread, dcp_report *report, dcp_error *err) {
    dcp_report own = DCP_REPORT_INIT;
    int status = dcp_save_wait(tiers->flight, &own, err);
    tiers->flight = NULL;
    swap_memory(tiers, tiers->flight_tier);
    tiers_record_save(tiers->flight_tier, tiers->flight_step, status);
    tiers_update_store(tiers, tiers->flight_tier);
    for (size_t i = 0; i < tiers->n && status; i++) {
        tier *t = &tiers->list[i];
        if (t->waiting) tiers_record_missed(t, tiers->flight_step);
        t->waiting = false;
    }
    for (size_t i = 0; i < tiers->n; i++)
        if (tiers->list[i].waiting && tiers->list[i].comm)
            fill_waiting(tiers, &tiers->list[i], is_own_thread);
    if (!status) status = core_sized_check(report, sizeof own, "DCP_REPORT_INIT", err);
    if (!status) core_sized_copy_out(report, &own, sizeof own);
    return status;
}

int dcp_tiers_wait(dcp_tiers *tiers, dcp_report *report, dcp_error *err) {
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_wait: tiers is NULL");
    tiers_answer_as_of_now(tiers);
    const int status = tiers->flight ? end_flight(tiers, true, report, err) : DCP_OK;
    fill_the_rest(tiers);
    return status;
}

int dcp_tiers_wait_in_thread(dcp_tiers *tiers, size_t *store, dcp_report *report, dcp_error *err) {
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_wait_in_thread: tiers is NULL");
    const bool is_saving = tiers->flight != NULL;
    const int status = is_saving ? end_flight(tiers, false, report, err) : DCP_OK;
    if (store)
        *store = is_saving && !status ? (size_t)(tiers->flight_tier - tiers->list) : tiers->n;
    return status;
}

/* Waits for the save in flight, because the caller requests another save. */
static int await_flight(dcp_tiers *tiers, dcp_error *err) {
    dcp_error why;
    int status = dcp_tiers_wait(tiers, NULL, &why);
    if (status) tiers_warn(tiers, tiers->flight_tier, tiers->flight_step, &why);
    if (status == DCP_ERR_COMM && err) *err = why;
    return status == DCP_ERR_COMM ? status : DCP_OK;
}

/* Sets busy[i] to a value other than 0 if any rank is still filling store i. */
static int find_busy(dcp_tiers *tiers, uint64_t *busy, dcp_error *err) {
    bool any = false;
    for (size_t i = 0; i < tiers->n; i++) {
        any |= tiers->list[i].drain != NULL;
        busy[i] = !tiers_drain_is_done(&tiers->list[i]);
    }
    return any ? comm_allreduce(tiers->comm, busy, tiers->n, DCP_REDUCE_MAX, err) : DCP_OK;
}

typedef enum tiers_call { IN_FLIGHT, NOW, NOW_AND_LAST } tiers_call;

/* Collective: checks that all ranks make the same call with the same step. The step determines
 * which stores are due. With DCP_BUSY_REFUSE, all ranks refuse an asynchronous save if one is in
 * flight on any rank. */
static int agree_on_turn(dcp_tiers *tiers, int status, uint64_t step, dcp_busy when_busy,
                         tiers_call call, dcp_error *err) {
    comm_vote v = {0};
    comm_vote_same(&v, "the step", step);
    comm_vote_same(&v, "when_busy", (uint64_t)when_busy);
    comm_vote_same(
        &v,
        "the call: 0 is dcp_tiers_save_async, 1 dcp_tiers_save, 2 dcp_tiers_save with also_last",
        call);
    comm_vote_same(&v, "whether the run goes on from another step (dcp_tiers_continue_from)",
                   (uint64_t)tiers->goes_back);
    comm_vote_same(&v, "the step that it goes on from", tiers->goes_back ? tiers->back_to : 0);
    comm_vote_same_hash(&v, "the steps that were marked as intact (dcp_tiers_mark_intact)",
                        tiers_marks(tiers));
    comm_vote_same(&v, "the stores that were requested (dcp_tiers_ask), one bit per store",
                   tiers_requests(tiers));
    if (!status)
        status = core_option_check_choice("when_busy", (int)when_busy, DCP_BUSY_REFUSE, err);
    if (!status && when_busy == DCP_BUSY_REFUSE && call == IN_FLIGHT &&
        dcp_tiers_is_done(tiers) != 1)
        status = core_fail(err, DCP_ERR_BUSY,
                           "a save is in flight: wait for it, or let this one wait (when_busy)");
    return comm_vote_run(tiers->comm, &v, status, err);
}

/* Returns true if the store is due and takes part in the save. `busy` is set if the store is still
 * being filled: then this function waits for the filling or, with DCP_BUSY_REFUSE, leaves the store
 * out. */
static bool takes_part(dcp_tiers *tiers, tier *t, uint64_t step, bool busy, dcp_busy when_busy) {
    if (!busy) tiers_drain_finish(tiers, t);
    if (!is_due(tiers, t, step) || (busy && when_busy == DCP_BUSY_REFUSE)) return false;
    tiers_drain_finish(tiers, t);
    return is_due(tiers, t, step);
}

/* Keeps the options of the save for the stores that will be filled from it. */
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

/* Returns the fastest of the waiting stores whose last save did not fail, or the fastest if all
 * have failed. Marks it as no longer waiting. */
static tier *take_first(dcp_tiers *tiers) {
    tier *first = NULL;
    for (size_t i = 0; i < tiers->n; i++) {
        tier *t = &tiers->list[i];
        if (t->waiting && (!first || (first->failed && !t->failed))) first = t;
    }
    if (first) first->waiting = false;
    return first;
}

/* Collective: does everything that comes before the save itself. Sets *first to the tier that gets
 * the save, or NULL if none does. Other tiers that are due wait for that save. */
static int take_tiers_turn(dcp_tiers *tiers, int status, uint64_t step, dcp_busy when_busy,
                           tier **first, dcp_error *err) {
    uint64_t busy[DCP_MAX_TIERS];
    status = agree_on_turn(tiers, status, step, when_busy, IN_FLIGHT, err);
    if (!status) status = await_flight(tiers, err);
    if (!status) status = tiers_check_marks(tiers, err);
    if (!status) status = tiers_go_back(tiers, err);
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
    bool busy = tiers->flight != NULL;
    for (size_t i = 0; i < tiers->n; i++) busy |= tiers->list[i].drain != NULL;
    if (busy)
        return core_fail(
            err, DCP_ERR_STATE,
            "dcp_tiers_prepare: a save is in flight or a store is being filled: call it "
            "before the first save");
    swap_memory(tiers, tiers->list);
    const int status = dcp_save_prepare(tiers->list[0].store, state, options, err);
    swap_memory(tiers, tiers->list);
    return status;
}

int dcp_tiers_save_async(dcp_tiers *tiers, uint64_t step, const dcp_state *state, const char *json,
                         const dcp_save_options *options, dcp_error *err) {
    dcp_save_options given;
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_save_async: tiers is NULL");
    tier *first = NULL;
    int status = core_sized_copy_in(&given, sizeof given, options, "DCP_SAVE_OPTIONS_INIT", err);
    status = take_tiers_turn(tiers, status, step, given.when_busy, &first, err);
    if (status || !first) return status;
    status = keep_options(tiers, &given, err);
    const dcp_save_options own = options_of(first, &given);
    tiers->flight_tier = first;
    tiers->flight_step = step;
    swap_memory(tiers, first);
    if (!status)
        status = dcp_save_async(first->store, step, state, json, &own, &tiers->flight, err);
    if (status) swap_memory(tiers, first);
    for (size_t i = 0; i < tiers->n; i++) {
        tier *t = &tiers->list[i];
        if (status)
            t->waiting = false;
        else if (t->waiting || t == first)
            t->requested = false; /* later requests are for the save after this one */
    }
    tiers_answer_as_before(tiers);
    return status;
}

/* Collective: if the tier has the step according to the list, checks that this is still true.
 * Records the step as lost if the step or the tier's directory is gone. */
static int check_has(const dcp_tiers *tiers, tier *t, uint64_t step, dcp_error *err) {
    uint64_t is_there = 1;
    if (!tiers_has_step(tiers, t, step)) return DCP_OK;
    const int status = store_has_step(t->store, step, &is_there, err);
    if (!status && !is_there) tiers_record_lost(t, step);
    return status;
}

/* Returns a store that has the step, or NULL if none is known. */
static const tier *find_holder(const dcp_tiers *tiers, uint64_t step) {
    for (size_t i = 0; i < tiers->n; i++)
        if (tiers_has_step(tiers, &tiers->list[i], step)) return &tiers->list[i];
    return NULL;
}

int dcp_tiers_save(dcp_tiers *tiers, uint64_t step, const dcp_state *state, const char *json,
                   const dcp_save_options *options, int also_last, dcp_report *report,
                   dcp_error *err) {
    dcp_save_options given;
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_save: tiers is NULL");
    dcp_error why;
    const tier *last = &tiers->list[tiers->n - 1], *failed = NULL;
    int saved = 0, failure = DCP_OK;
    int status = core_sized_copy_in(&given, sizeof given, options, "DCP_SAVE_OPTIONS_INIT", err);
    if (!status) status = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    status =
        agree_on_turn(tiers, status, step, given.when_busy, also_last ? NOW_AND_LAST : NOW, err);
    if (status) return status;
    status = await_flight(tiers, err);
    if (!status) status = tiers_check_marks(tiers, err);
    if (!status) status = tiers_go_back(tiers, err);
    for (size_t i = 0; i < tiers->n; i++) tiers_drain_finish(tiers, &tiers->list[i]);
    for (size_t i = 0; i < tiers->n && !status; i++) {
        tier *t = &tiers->list[i];
        status = check_has(tiers, t, step, err);
        if (status || tiers_has_step(tiers, t, step) ||
            !(is_due(tiers, t, step) || (also_last && t == last)))
            continue;
        if (failed) tiers_warn(tiers, failed, step, &why);
        failed = NULL;
        const dcp_save_options own = options_of(t, &given);
        swap_memory(tiers, t);
        int outcome = dcp_save(t->store, step, state, json, &own, report, &why);
        swap_memory(tiers, t);
        tiers_record_save(t, step, outcome);
        if (!outcome) t->requested = false, saved++;
        if (outcome) failed = t, failure = outcome;
        if (outcome == DCP_ERR_COMM) break;
    }
    if (status || !failed) return status;
    if (failure != DCP_ERR_COMM && (also_last ? tiers_has_step(tiers, last, step) : saved > 0)) {
        tiers_warn(tiers, failed, step, &why);
        return DCP_OK;
    }
    const tier *other = find_holder(tiers, step);
    if (err) *err = why;
    if (!other) return failure;
    return core_fail_add(failure, err, "; step %llu is in %s", (unsigned long long)step,
                         other->store->dir);
}
