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

/* Notes how a save of `step` ended. */
static int note(saves *s, uint64_t step, int status) {
    s->failed = status != DCP_OK;
    if (status != DCP_OK) return status;
    s->saved_step = step;
    s->saved_any = 1;
    return DCP_OK;
}

static int tell(const saves *s, uint64_t step, int status, const dcp_error *err) {
    if (status != DCP_OK)
        say_warning(s->t->rank,
                    "step %" PRIu64 " is not saved: %s; older steps stay, training goes on", step,
                    err->message);
    return status == DCP_ERR_COMM ? status : DCP_OK;
}

/* Saves the state as it is; in flight, where `flight`. */
static int save(saves *s, int flight, dcp_error *err) {
    trainer *t = s->t;
    char *json = NULL, *about = NULL;
    int status = meta_write(t->state, t->c, data_samples(t->samples), &json, err);
    if (status == DCP_OK) about = about_members(t->k->describe(t->k));
    if (status == DCP_OK && !about) status = trainer_fail_memory(err, 0);
    status = agree(t->comm, status, err);
    const dcp_save_options options = {
        .layout = t->c->sharded ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL,
        .engine = t->c->engine,
        .about_json = about,
        .staging_bytes = t->c->staging_bytes ? t->c->staging_bytes : DCP_STAGING_NONE};
    const uint64_t step = t->state->step;
    if (status == DCP_OK && flight)
        status = dcp_save_async(t->store, step, t->registered, json, &options, &t->flight, err);
    else if (status == DCP_OK)
        status = dcp_save(t->store, step, t->registered, json, &options, NULL, err);
    s->flight_step = step;
    free(about);
    free(json);
    return status;
}

static int settle(saves *s) {
    if (!s->t->flight) return DCP_OK;
    dcp_error err;
    const int status = dcp_save_wait(s->t->flight, NULL, &err);
    s->t->flight = NULL;
    note(s, s->flight_step, status);
    return tell(s, s->flight_step, status, &err);
}

/* Whether the save in flight is still under way on any rank. */
static int is_busy(const saves *s) {
    int busy = s->t->flight && !dcp_save_is_done(s->t->flight);
    MPI_Allreduce(MPI_IN_PLACE, &busy, 1, MPI_INT, MPI_MAX, s->t->comm);
    return busy;
}

static int start(saves *s) {
    dcp_error err;
    if (s->t->c->skip_when_busy && is_busy(s)) return DCP_OK;
    int status = settle(s);
    if (status != DCP_OK || s->saved_step == s->t->state->step) return status;
    status = save(s, s->t->c->async, &err);
    if (!s->t->flight) note(s, s->t->state->step, status);
    return tell(s, s->t->state->step, status, &err);
}

int saves_start(saves *s) {
    const double begin = MPI_Wtime();
    const int status = start(s);
    s->stall_s += MPI_Wtime() - begin;
    return status;
}

int saves_settle(saves *s) {
    const double begin = MPI_Wtime();
    const int status = settle(s);
    s->stall_s += MPI_Wtime() - begin;
    return status;
}

int saves_finish(saves *s, dcp_error *err) {
    const uint64_t step = s->t->state->step;
    const double begin = MPI_Wtime();
    int status = settle(s);
    if (status != DCP_OK)
        trainer_fail(err, status, "the save before it failed, and ranks can't talk any more");
    else if (s->saved_step != step)
        status = note(s, step, save(s, 0, err));
    s->stall_s += MPI_Wtime() - begin;
    return status;
}
