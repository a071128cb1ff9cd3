/* Saves of a run. A save that fails is tried again after the next step; only the last one of a run
 * must succeed. */
#include "saves.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../agree.h"
#include "../fail.h"
#include "../say.h"
#include "../state/about.h"
#include "../state/meta.h"

void saves_begin(saves *s, trainer *t) {
    const uint64_t step = t->state->step;
    int loaded_here = 0;
    *s = (saves){.t = t, .start_step = step};
    for (size_t i = 0; i < t->c->n_stores; i++) loaded_here |= dcp_tiers_has(t->stores, i, step);
    if (loaded_here) s->start_step = UINT64_MAX;
}

int saves_are_due(const saves *s) {
    return s->failed || dcp_tiers_is_due(s->t->stores, s->t->state->step);
}

int saves_are_complete(const saves *s) {
    const uint64_t step = s->t->state->step;
    return step == s->start_step || dcp_tiers_has(s->t->stores, s->t->c->n_stores - 1, step);
}

/* Notes how a save ended. */
static int note(saves *s, int status) {
    s->failed = status != DCP_OK;
    s->saved_any |= status == DCP_OK;
    return status;
}

static int tell(const saves *s, uint64_t step, int status, const dcp_error *err) {
    if (status != DCP_OK)
        say_warning(s->t->rank,
                    "step %" PRIu64 " is not saved: %s; older steps stay, training goes on", step,
                    err->message);
    return status == DCP_ERR_COMM ? status : DCP_OK;
}

/* A save that began at `begin`, for the trace. Its pieces alternate; they are drawn one after the
 * other, as long as they took together. The engine that saves where it is waited for began late. */
static void note_pieces(saves *s, uint64_t step, double begin, const dcp_report *report) {
    timeline *tl = &s->t->tl;
    if (report->total_s <= 0) return; /* there was nothing to save */
    const double pieces[] = {report->plan_s,  report->gather_s, report->copy_s,
                             report->write_s, report->sync_s,   report->publish_s};
    const int late = report->engine == DCP_ENGINE_MPIO || !s->flying;
    double at = late ? MPI_Wtime() - report->total_s : begin;
    const double end = at + report->total_s;
    timeline_add(tl, TIMELINE_SAVE, (long)step, at, end);
    for (int i = 0; i < (int)(sizeof pieces / sizeof *pieces); i++) {
        const double next = at + pieces[i] < end ? at + pieces[i] : end;
        timeline_add(tl, (timeline_kind)(TIMELINE_SAVE_PLAN + i), -1, at, next);
        at = next;
    }
}

/* A save reads all of the state: what is offloaded need not stay for that. */
static void let_go(void *state, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    state_release_all(state);
}

/* Saves the state as it is: into the stores that are due, in flight, or now, and then `also_last`
 * into checkpoint.dir. */
static int save(saves *s, int flight, int also_last, dcp_error *err) {
    trainer *t = s->t;
    char *json = NULL, *about = NULL;
    int status = meta_write(t->state, t->c, data_samples(t->samples), t->sequence, &json, err);
    if (status == DCP_OK) about = about_members(t->k->describe(t->k));
    if (status == DCP_OK && !about) status = trainer_fail_memory(err, 0);
    status = agree(t->comm, status, err);
    const dcp_save_options options = {
        .engine = t->c->engine,
        .about_json = about,
        .staging_bytes = t->c->staging_bytes ? t->c->staging_bytes : DCP_STAGING_NONE,
        .when_busy = t->c->skip_when_busy ? DCP_BUSY_REFUSE : DCP_BUSY_WAIT,
        .on_progress = t->state->offloaded ? let_go : NULL,
        .progress_ctx = t->state};
    const uint64_t step = t->state->step;
    dcp_report report = {0};
    s->flight_begin = MPI_Wtime();
    if (status == DCP_OK && flight)
        status = dcp_tiers_save_async(t->stores, step, t->registered, json, &options, err);
    else if (status == DCP_OK)
        status =
            dcp_tiers_save(t->stores, step, t->registered, json, &options, also_last, &report, err);
    s->flying = flight && status == DCP_OK;
    if (!flight && status == DCP_OK) note_pieces(s, step, s->flight_begin, &report);
    s->flight_step = step;
    free(about);
    free(json);
    return status;
}

static int settle(saves *s) {
    if (!s->flying) return DCP_OK;
    dcp_error err;
    dcp_report report = {0};
    const int status = dcp_tiers_wait(s->t->stores, &report, &err);
    if (status == DCP_OK) note_pieces(s, s->flight_step, s->flight_begin, &report);
    s->flying = 0;
    note(s, status);
    return tell(s, s->flight_step, status, &err);
}

/* Whether the save in flight is still under way on any rank. */
static int is_busy(const saves *s) {
    int busy = s->flying && !dcp_tiers_is_done(s->t->stores);
    MPI_Allreduce(MPI_IN_PLACE, &busy, 1, MPI_INT, MPI_MAX, s->t->comm);
    return busy;
}

static int start(saves *s) {
    dcp_error err;
    if (s->t->c->skip_when_busy && is_busy(s)) return DCP_OK;
    int status = settle(s);
    if (status != DCP_OK || !saves_are_due(s)) return status;
    status = save(s, s->t->c->async, 0, &err);
    if (!s->flying) note(s, status);
    return tell(s, s->t->state->step, status, &err);
}

int saves_start(saves *s) {
    const double begin = MPI_Wtime();
    const int status = start(s);
    timeline_add(&s->t->tl, TIMELINE_STALL, -1, begin, MPI_Wtime());
    return status;
}

int saves_settle(saves *s) {
    const double begin = MPI_Wtime();
    const int status = settle(s);
    timeline_add(&s->t->tl, TIMELINE_STALL, -1, begin, MPI_Wtime());
    return status;
}

int saves_finish(saves *s, dcp_error *err) {
    const double begin = MPI_Wtime();
    int status = settle(s);
    if (status != DCP_OK)
        trainer_fail(err, status, "the save before it failed, and ranks can't talk any more");
    else if (!saves_are_complete(s))
        status = note(s, save(s, 0, 1, err));
    timeline_add(&s->t->tl, TIMELINE_STALL, -1, begin, MPI_Wtime());
    return status;
}
