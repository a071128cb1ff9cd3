/* Steps, lines and saves. A step's line is written before the step is saved: what a resumed run
 * finds saved has its line. */
#include "loop/loop.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "programs/program.h"
#include "ranks/launcher.h"
#include "ranks/say.h"
#include "report/report.h"
#include "state/train_state.h"
#include "step/evaluate.h"
#include "step/prove.h"
#include "step/saves.h"
#include "step/signals.h"
#include "step/trainer.h"
#include "step/update.h"

typedef struct loop {
    trainer *t;
    run_report report;
    step_saves saves;
} loop;

/* The save with which the run ends, asked for by the signal `stop`, or 0. */
static int save_and_end(loop *l, int stop) {
    const trainer *t = l->t;
    char why[32] = "done";
    if (stop) snprintf(why, sizeof why, "stopped by SIG%s", sigabbrev_np(stop));
    dcp_error err;
    const int status = step_saves_finish(&l->saves, &err);
    if (status != DCP_OK) {
        if (status == DCP_ERR_NO_SPACE)
            ranks_launcher_tell(t->rank, "there is no room for another step");
        ranks_say(t->rank, "%s, but step %" PRIu64 " could not be saved: %s", why, t->state->step,
                  err.message);
        return PROGRAM_FAILED;
    }
    if (l->saves.saved_any)
        ranks_say(t->rank, "%s: step %" PRIu64 " is saved in %s", why, t->state->step, t->c->dir);
    else
        ranks_say(t->rank, "%s at step %" PRIu64 ", before anything was to be saved", why,
                  t->state->step);
    return stop ? PROGRAM_STOPPED : PROGRAM_DONE;
}

static int is_save_due(const loop *l) {
    if (l->t->state->step == l->t->c->max_steps) return 0; /* the run's last save follows */
    return step_saves_are_due(&l->saves);
}

/* One step and what follows it; PROGRAM_DONE: go on. */
static int take_step(loop *l) {
    step_result r = {0};
    step_evaluation e = {0};
    dcp_error err;
    int status = step_update(l->t, &r, &err);
    r.is_proven = status == DCP_OK && step_prove_is_due(l->t);
    if (r.is_proven) status = step_prove(l->t, &r.state_id, &err);
    if (status == DCP_OK && step_evaluate_is_due(l->t)) status = step_evaluate(l->t, &e, &err);
    if (status != DCP_OK) {
        ranks_say(l->t->rank, "%s", err.message);
        if (status == DCP_ERR_STATE) ranks_launcher_tell(l->t->rank, err.message);
        return status == DCP_ERR_ARG ? PROGRAM_USAGE
                                     : PROGRAM_FAILED; /* data that no restart mends */
    }
    report_step(&l->report, &r, &e);
    return is_save_due(l) && step_saves_start(&l->saves) != DCP_OK ? PROGRAM_FAILED : PROGRAM_DONE;
}

static int answer_save_request(loop *l) {
    dcp_error err;
    const uint64_t step = l->t->state->step;
    const int status = step_saves_finish(&l->saves, &err);
    if (status != DCP_OK)
        ranks_warn(l->t->rank, "SIGUSR1: step %" PRIu64 " is not saved: %s", step, err.message);
    else
        ranks_say(l->t->rank, "SIGUSR1: step %" PRIu64 " %s", step,
                  l->saves.saved_any ? "is saved" : "is where the run starts: nothing to save");
    return status == DCP_ERR_COMM || status == DCP_ERR_STATE ? PROGRAM_FAILED : PROGRAM_DONE;
}

static int run_steps(loop *l) {
    const trainer *t = l->t;
    if (t->state->step >= t->c->max_steps && step_saves_are_complete(&l->saves)) {
        ranks_say(t->rank, "step %" PRIu64 " of max_steps %" PRIu64 " is reached: nothing to do",
                  t->state->step, t->c->max_steps);
        return PROGRAM_DONE;
    }
    int status = PROGRAM_DONE;
    while (status == PROGRAM_DONE) {
        const step_signal_requests asked = step_signals_take(t->comm);
        if (asked.stop) return save_and_end(l, asked.stop);
        if (t->state->step >= t->c->max_steps) return save_and_end(l, 0);
        if (asked.save) status = answer_save_request(l);
        if (status == PROGRAM_DONE) status = take_step(l);
    }
    return status;
}

int loop_run(trainer *t) {
    loop l = {.t = t};
    dcp_error err;
    step_saves_begin(&l.saves, t);
    const int status = report_begin(&l.report, t, &err);
    if (status != DCP_OK) {
        ranks_say(t->rank, "%s", err.message);
        const int is_wrong = status == DCP_ERR_ARG || status == DCP_ERR_BUSY;
        return report_end(&l.report, is_wrong ? PROGRAM_USAGE : PROGRAM_FAILED);
    }
    const int end = run_steps(&l);
    step_saves_settle(&l.saves);
    return report_end(&l.report, end);
}
