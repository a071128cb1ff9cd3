#include "step/saves.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <dcp/prove.h>
#include <dcp/tiers.h>

#include "config/config.h"
#include "data/data.h"
#include "programs/fail.h"
#include "programs/json_read.h"
#include "ranks/board.h"
#include "ranks/launcher.h"
#include "ranks/log.h"
#include "state/meta.h"
#include "state/provenance.h"
#include "state/train_state.h"
#include "step/trainer.h"

bool step_slow_note(step_slow *s, const dcp_report *report) {
    if (!(report->slow_ratio > 0)) {
        s->saves = 0;
        if (++s->quiet >= STEP_SLOW_QUIET) s->is_reported = false;
        return false;
    }
    if (report->slow_rank != s->rank) *s = (step_slow){.rank = report->slow_rank};
    s->quiet = 0;
    if (++s->saves < STEP_SLOW_SAVES || s->is_reported) return false;
    s->is_reported = true;
    return true;
}

bool step_prove_is_due(const trainer *t) {
    return t->prove_every && t->state->step % t->prove_every == 0;
}

int step_prove(const trainer *t, uint64_t *id, dcp_error *err) {
    dcp_state *held = NULL;
    dcp_proof *proof = NULL;
    int status = state_register(t->state, STATE_ALL | STATE_REPLICAS, &held, err);
    status = ranks_agree(t->comm, status, err);
    if (status == DCP_OK) status = dcp_prove(t->dcp, held, NULL, &proof, err);
    if (status == DCP_OK) *id = dcp_proof_id(proof);
    state_release_all(t->state);
    dcp_proof_destroy(proof);
    dcp_state_destroy(held);
    return status;
}

/* Saves of a run. A failed save is tried again after the next step; only the run's last save must
 * succeed. Three kinds of saves remove old steps if they need room: the last save, a save that a
 * signal requests, and all saves after one that found no room. Training waits for such a save,
 * because the save may have to read the memory again. Other saves leave as many steps as `keep`
 * specifies. */

static uint64_t staging_of(const config *c) {
    return c->staging_bytes ? c->staging_bytes : DCP_STAGING_NONE;
}

int step_saves_prepare(const trainer *t, dcp_error *err) {
    const dcp_save_options options = {.size = sizeof options, .staging_bytes = staging_of(t->c)};
    return dcp_tiers_prepare(t->stores, t->registered, &options, err);
}

void step_saves_begin(step_saves *s, trainer *t) {
    const uint64_t step = t->state->step;
    bool loaded_here = false;
    *s = (step_saves){.t = t, .start_step = step};
    struct stat st;
    if (t->rank == 0 && stat(t->c->dir, &st) == 0) s->device = st.st_dev, s->inode = st.st_ino;
    for (size_t i = 0; i < t->c->n_stores; i++) loaded_here |= dcp_tiers_has(t->stores, i, step);
    if (loaded_here) s->start_step = UINT64_MAX;
}

/* JSON has no NaN and no infinity. */
static void set_result(json_t *about, const char *key, double value, bool is_known) {
    if (!is_known || !isfinite(value) || json_object_set_new(about, key, json_real(value)))
        json_object_del(about, key);
}

void step_saves_set_results(step_saves *s, const step_result *result, const step_evaluation *e) {
    set_result(s->t->about, STATE_LOSS, result->loss, true);
    step_saves_set_evaluation(s, e);
}

void step_saves_set_evaluation(step_saves *s, const step_evaluation *e) {
    const trainer *t = s->t;
    set_result(t->about, STATE_EVAL_LOSS, e->loss, e->done);
    set_result(t->about, STATE_EVAL_ACCURACY, e->accuracy, e->done && t->shape.tokens == 0);
}

bool step_saves_are_due(const step_saves *s) {
    return s->failed || dcp_tiers_is_due(s->t->stores, s->t->state->step);
}

bool step_saves_are_complete(const step_saves *s) {
    const uint64_t step = s->t->state->step;
    return step == s->start_step || dcp_tiers_has(s->t->stores, s->t->c->n_stores - 1, step);
}

/* Records how a save ended. */
static int note_end(step_saves *s, int status) {
    s->failed = status != DCP_OK;
    s->lacks_space |= status == DCP_ERR_NO_SPACE;
    s->saved_any |= status == DCP_OK;
    if (status == DCP_OK) s->reported_status = DCP_OK;
    if (status == DCP_OK) ranks_board_publish(s->flight_step);
    return status;
}

/* Collective. Returns true if the run's directory is no longer where it was. */
static bool is_directory_gone(const step_saves *s) {
    struct stat now;
    int gone = s->t->rank == 0 && s->inode &&
               (stat(s->t->c->dir, &now) != 0 ? errno == ENOENT || errno == ENOTDIR
                                              : now.st_dev != s->device || now.st_ino != s->inode);
    MPI_Bcast(&gone, 1, MPI_INT, 0, s->t->comm);
    return gone;
}

/* Collective. Returns true if a save has failed for a reason that would make all later saves fail,
 * too. A restart would then only do harm. Reports the reason in *err to dcp-run. */
static bool is_final(const step_saves *s, int status, dcp_error *err) {
    const trainer *t = s->t;
    if (status == DCP_ERR_COMM) return false;
    if (is_directory_gone(s))
        core_fail(err, DCP_ERR_STATE,
                  "checkpoint.dir: %s was moved or removed during the run; restore it and start "
                  "the run again, which then continues from its newest step",
                  t->c->dir);
    else if (status != DCP_ERR_BUSY) /* DCP_ERR_BUSY: another writer has the store */
        return false;
    ranks_launcher_report_final(t->rank, err->message);
    return true;
}

/* Collective. Reports a failed save. Returns DCP_OK if the run continues. */
static int report_failure(step_saves *s, uint64_t step, int status, dcp_error *err) {
    const int rank = s->t->rank;
    if (status == DCP_OK || status == DCP_ERR_COMM) return status;
    if (is_final(s, status, err)) {
        ranks_info(rank, "step %" PRIu64 " is not saved, and the run ends: %s", step, err->message);
        return DCP_ERR_STATE;
    }
    const char *then =
        status == DCP_ERR_NO_SPACE ? "the next save may remove old steps" : "older steps are kept";
    if (status != s->reported_status)
        ranks_warn(rank,
                   "step %" PRIu64 " is not saved: %s; %s, training continues, and this message is "
                   "not repeated until a step is saved",
                   step, err->message, then);
    s->reported_status = status;
    return DCP_OK;
}

/* Warns if a rank is slow. All ranks have the same report. */
static void note_slow(step_saves *s, const dcp_report *report) {
    if (step_slow_note(&s->slow, report))
        ranks_warn(s->t->rank,
                   "rank %d on host %s is slow, and saves wait for it: its part of step %" PRIu64
                   " took %.1f s, %.1f times the median rank's %.1f s; this message is not "
                   "repeated while that lasts",
                   report->slow_rank, report->slow_host, s->flight_step, report->slow_s,
                   report->slow_ratio, report->median_s);
}

static const double least_wait_s = 1e-5;

/* Stores a phase of a save. A wait for the disk is stored only if it is long, and only if enough
 * room is left for the other phases. */
static void keep_phase(void *ctx, dcp_phase phase, double begin, double end) {
    step_saves *s = ctx;
    const size_t kept_free = 64,
                 room = STEP_SAVE_PHASES - (phase == DCP_PHASE_WRITE ? kept_free : 0);
    if (phase == DCP_PHASE_WRITE && end - begin < least_wait_s) return;
    if (s->n_phases >= room) {
        s->lost_phases++;
        return;
    }
    s->phases[s->n_phases].begin = begin;
    s->phases[s->n_phases].end = end;
    s->phases[s->n_phases++].phase = phase;
}

/* Adds the phases of the finished save to the trace. */
static void note_phases(step_saves *s) {
    timeline *tl = &s->t->tl;
    for (size_t i = 0; i < s->n_phases; i++)
        timeline_add_monotonic(tl, (timeline_kind)(TIMELINE_SAVE + s->phases[i].phase),
                               (long)s->flight_step, s->phases[i].begin, s->phases[i].end);
    tl->dropped += s->lost_phases;
    s->n_phases = s->lost_phases = 0;
}

/* Reports progress, and releases the memory pages of offloaded parts: a save reads the whole state,
 * which would otherwise fill the memory. */
static void note_progress(void *ctx, uint64_t done, uint64_t total) {
    train_state *state = ctx;
    ranks_board_on_progress(NULL, done, total);
    if (state->offloaded) state_release_all(state);
}

/* Saves the current state to the stores that are due. flight: starts the save and returns;
 * otherwise saves before it returns. also_last: saves to checkpoint.dir, too, due or not. */
static int save_state(step_saves *s, bool flight, bool also_last, dcp_error *err) {
    trainer *t = s->t;
    char *json = NULL, *about = NULL;
    const meta_data samples = {data_samples(t->samples), t->sequence, data_fingerprint(t->samples)};
    int status = state_meta_write(t->state, t->c, &samples, &json, err);
    if (status == DCP_OK) about = core_json_text(t->about, JSON_COMPACT);
    if (status == DCP_OK && !about) status = core_fail_memory(err, 0);
    status = ranks_agree(t->comm, status, err);
    const dcp_save_options options = {.size = sizeof options,
                                      .engine = t->c->engine,
                                      .about_json = about,
                                      .staging_bytes = staging_of(t->c),
                                      .when_busy =
                                          t->c->skip_when_busy ? DCP_BUSY_REFUSE : DCP_BUSY_WAIT,
                                      .make_room = s->lacks_space || also_last,
                                      .on_progress = note_progress,
                                      .progress_ctx = t->state,
                                      .on_phase = t->tl.events ? keep_phase : NULL,
                                      .phase_ctx = s};
    dcp_report report = DCP_REPORT_INIT;
    const uint64_t step = t->state->step;
    s->flight_step = step;
    if (status == DCP_OK && flight)
        status = dcp_tiers_save_async(t->stores, step, t->registered, json, &options, err);
    else if (status == DCP_OK)
        status =
            dcp_tiers_save(t->stores, step, t->registered, json, &options, also_last, &report, err);
    s->in_flight = flight && status == DCP_OK;
    if (!s->in_flight) note_phases(s);
    if (!s->in_flight && status == DCP_OK) note_slow(s, &report);
    free(about);
    free(json);
    return status;
}

static int wait_for_flight(step_saves *s) {
    if (!s->in_flight) return DCP_OK;
    dcp_error err;
    dcp_report report = DCP_REPORT_INIT;
    const int status = dcp_tiers_wait(s->t->stores, &report, &err);
    note_phases(s);
    if (status == DCP_OK) note_slow(s, &report);
    s->in_flight = false;
    note_end(s, status);
    return report_failure(s, s->flight_step, status, &err);
}

/* Returns true if a thread of any rank is still working on the save in flight. A save without a
 * thread does not count, because it completes only when it is waited for. */
static bool is_busy(const step_saves *s) {
    int busy = s->in_flight && dcp_tiers_is_done(s->t->stores) == 0;
    MPI_Allreduce(MPI_IN_PLACE, &busy, 1, MPI_INT, MPI_MAX, s->t->comm);
    return busy;
}

static int start_due(step_saves *s) {
    dcp_error err;
    if (s->t->c->skip_when_busy && is_busy(s)) return DCP_OK;
    int status = wait_for_flight(s);
    if (status != DCP_OK || !step_saves_are_due(s)) return status;
    status = save_state(s, s->t->c->async, false, &err);
    if (!s->in_flight) note_end(s, status);
    return report_failure(s, s->t->state->step, status, &err);
}

int step_saves_start(step_saves *s) {
    const double begin = MPI_Wtime();
    const int status = start_due(s);
    timeline_add(&s->t->tl, TIMELINE_STALL, -1, begin, MPI_Wtime());
    return status;
}

int step_saves_wait(step_saves *s) {
    const double begin = MPI_Wtime();
    const int status = wait_for_flight(s);
    timeline_add(&s->t->tl, TIMELINE_STALL, -1, begin, MPI_Wtime());
    return status;
}

static int save_last(step_saves *s, dcp_error *err) {
    const int status = note_end(s, save_state(s, false, true, err));
    return status != DCP_OK && is_final(s, status, err) ? DCP_ERR_STATE : status;
}

int step_saves_finish(step_saves *s, dcp_error *err) {
    const double begin = MPI_Wtime();
    int status = wait_for_flight(s);
    if (status != DCP_OK)
        core_fail(err, status,
                  status == DCP_ERR_COMM
                      ? "the previous save failed, and ranks cannot communicate any more"
                      : "the previous save failed, and this one would fail, too");
    else if (!step_saves_are_complete(s))
        status = save_last(s, err);
    timeline_add(&s->t->tl, TIMELINE_STALL, -1, begin, MPI_Wtime());
    return status;
}

bool step_saves_are_held(const step_saves *s) {
    const trainer *t = s->t;
    for (size_t i = 0; i < t->c->n_stores; i++)
        if (dcp_tiers_has(t->stores, i, t->state->step)) return true;
    return false;
}

/* Returns true if the ranks of the next start, which leave `dropped` of the hosts, will find
 * everything in the store. Of several hosts, another one may be lost before that start, so the
 * store has to survive the loss of at least one. It is not certain that the ranks find everything
 * if the path contains the rank or an environment variable: the paths of the next start's ranks may
 * differ from the present paths. */
static bool outlasts_ranks(const trainer *t, size_t i, int hosts, int dropped) {
    const dcp_tier *store = &t->c->stores[i];
    if (!store->is_private) return true;
    if (strstr(store->path, "{rank}") || strstr(store->path, "{env:")) return false;
    const int lost = dropped == 0 && hosts > 1 ? 1 : dropped;
    return dcp_tiers_survives(t->stores, i) >= lost;
}

/* Collective. *out: the fastest store in which the ranks of the next start will find everything. */
static int choose_store(const trainer *t, int dropped, size_t *out, dcp_error *err) {
    int hosts;
    const int status = dcp_comm_hosts(t->dcp, &hosts, NULL, err);
    *out = 0;
    while (status == DCP_OK && *out + 1 < t->c->n_stores &&
           !outlasts_ranks(t, *out, hosts, dropped))
        ++*out;
    return status;
}

static int save_into(step_saves *s, size_t store, dcp_error *err) {
    const int status = dcp_tiers_ask(s->t->stores, store, err);
    return status == DCP_OK ? note_end(s, save_state(s, false, false, err)) : status;
}

int step_saves_hand_over(step_saves *s, int dropped, dcp_error *err) {
    const trainer *t = s->t;
    const uint64_t step = t->state->step;
    size_t store;
    int status = wait_for_flight(s);
    if (status != DCP_OK) return core_fail(err, status, "the previous save failed");
    status = choose_store(t, dropped, &store, err);
    if (status != DCP_OK || step == s->start_step || dcp_tiers_has(t->stores, store, step))
        return status;
    status = save_into(s, store, err);
    if (status == DCP_ERR_COMM || dcp_tiers_has(t->stores, store, step)) return status;
    return step_saves_finish(s, err);
}
