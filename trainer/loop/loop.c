/* Steps, log lines and saves. A step's line is written before the step is saved, so a resumed run
 * finds the line of every saved step. */
#include "loop/loop.h"

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "programs/program.h"
#include "ranks/board.h"
#include "ranks/launcher.h"
#include "ranks/log.h"
#include "report/report.h"
#include "setup/disk_space.h"
#include "setup/setup.h"
#include "state/train_state.h"
#include "step/evaluate.h"
#include "step/external_requests.h"
#include "step/saves.h"
#include "step/trainer.h"
#include "step/update.h"

typedef struct loop {
    trainer *t;
    run_report report;
    step_saves saves;
    bool has_stepped;
} loop;

/* Returns the reason why the run ends; text[32] is memory for it. */
static const char *name_end(const step_requests *asked, char *text) {
    if (asked->end == RANKS_END_NONE) return "done";
    if (!asked->signal) return "stopped by dcp-run";
    snprintf(text, 32, "stopped by SIG%s", sigabbrev_np(asked->signal));
    return text;
}

static int end_status(ranks_end_request end) {
    if (end == RANKS_END_NONE) return PROGRAM_DONE;
    return end == RANKS_END_REQUEUE ? PROGRAM_REQUEUE : PROGRAM_STOPPED;
}

/* Makes the run's last save, because all steps are done or because a stop was requested. */
static int save_and_end(loop *l, const step_requests *asked) {
    const trainer *t = l->t;
    char text[32];
    const char *why = name_end(asked, text);
    dcp_error err;
    const int status = step_saves_finish(&l->saves, &err);
    if (status != DCP_OK) {
        if (status == DCP_ERR_NO_SPACE) ranks_launcher_report(t->rank, SETUP_NO_ROOM);
        ranks_info(t->rank, "%s, but step %" PRIu64 " could not be saved: %s", why, t->state->step,
                   err.message);
        return PROGRAM_FAILED;
    }
    if (l->saves.saved_any)
        ranks_info(t->rank, "%s: step %" PRIu64 " is saved in %s", why, t->state->step, t->c->dir);
    else
        ranks_info(t->rank, "%s at step %" PRIu64 ", before a save was due", why, t->state->step);
    return end_status(asked->end);
}

/* Makes the save from which dcp-run immediately starts a different set of ranks. If the run has
 * been asked to end in the meantime, this is its last save instead. dropped: see
 * step_saves_hand_over. */
static int hand_over(loop *l, int dropped) {
    const trainer *t = l->t;
    step_requests asked = {.dropped = dropped};
    dcp_error err;
    int status;
    do { /* again if the run leaves more hosts than was known */
        dropped = asked.dropped;
        status = step_saves_hand_over(&l->saves, dropped, &err);
        if (status == DCP_ERR_COMM) return PROGRAM_FAILED; /* ranks cannot communicate any more */
        asked = step_requests_collect(t->comm);
    } while (asked.end == RANKS_END_RESIZE && asked.dropped > dropped);
    if (asked.end > RANKS_END_RESIZE) return save_and_end(l, &asked);
    if (status == DCP_OK && !step_saves_are_complete(&l->saves))
        ranks_board_hand_over(t->state->step);
    if (status == DCP_OK)
        ranks_info(t->rank, "step %" PRIu64 " is handed over to other ranks", t->state->step);
    else
        ranks_info(t->rank, "step %" PRIu64 " could not be saved for other ranks: %s",
                   t->state->step, err.message);
    return status == DCP_OK ? PROGRAM_STOPPED : PROGRAM_FAILED;
}

static bool is_save_due(const loop *l) {
    if (l->t->state->step == l->t->c->max_steps) return false; /* the run's last save follows */
    return step_saves_are_due(&l->saves);
}

/* To be called after the first step. */
static void begin_training(loop *l) {
    ranks_board_reach(RANKS_PHASE_STEPPED);
    const double begin = MPI_Wtime();
    setup_measure_peak(l->t);
    report_exclude_time(&l->report, MPI_Wtime() - begin);
    l->has_stepped = true;
}

/* Saves what was computed so far, because the run cannot continue. */
static void save_before_failure(loop *l) {
    const trainer *t = l->t;
    const uint64_t step = t->state->step;
    dcp_error err;
    if (step_saves_wait(&l->saves) != DCP_OK || step_saves_are_complete(&l->saves)) return;
    if (!step_state_is_finite(t))
        ranks_info(t->rank, "step %" PRIu64 " has parameters that are not finite: it is not saved",
                   step);
    else if (step_saves_finish(&l->saves, &err) == DCP_OK)
        ranks_info(t->rank, "step %" PRIu64 ", the last one before the failure, is saved in %s",
                   step, t->c->dir);
    else
        ranks_info(t->rank,
                   "step %" PRIu64 ", the last one before the failure, could not be saved: %s",
                   step, err.message);
}

/* Ends the run after a failure. Does not save if the failed update left no usable state. */
static int end_failed(loop *l, int status, const dcp_error *why) {
    ranks_info(l->t->rank, "%s", why->message);
    if (status == DCP_ERR_STATE) ranks_launcher_report(l->t->rank, why->message);
    if (status != DCP_ERR_COMM && status != DCP_ERR_DEVICE) save_before_failure(l);
    /* DCP_ERR_ARG: the data are invalid, so a restart would fail, too */
    return status == DCP_ERR_ARG ? PROGRAM_USAGE : PROGRAM_FAILED;
}

/* Does one step, then its evaluation if one is due, then its report, and starts a save if one is
 * due. Returns PROGRAM_DONE if the run can continue. */
static int take_step(loop *l) {
    step_result r = {0};
    step_evaluation e = {0};
    dcp_error err;
    int status = step_update(l->t, &r, &err);
    if (status != DCP_OK) return end_failed(l, status, &err);
    if (!l->has_stepped) begin_training(l);
    r.is_proven = step_prove_is_due(l->t);
    if (r.is_proven) status = step_prove(l->t, &r.state_id, &err);
    r.is_proven &= status == DCP_OK;
    const bool is_due = step_evaluate_is_due(l->t);
    if (status == DCP_OK && is_due) status = step_evaluate(l->t, &e, &err);
    e.done &= status == DCP_OK;
    l->t->state->owes_evaluation = is_due && !e.done;
    step_saves_set_results(&l->saves, &r, &e);
    report_step(&l->report, &r, &e);
    if (status != DCP_OK) return end_failed(l, status, &err);
    /* the step is done, although its save may have to wait */
    ranks_board_step(l->t->state->step, 0);
    return is_save_due(l) && step_saves_start(&l->saves) != DCP_OK ? PROGRAM_FAILED : PROGRAM_DONE;
}

/* Calls take_step and reports its duration to dcp-run. */
static int time_step(loop *l) {
    const double begin = MPI_Wtime();
    const int status = take_step(l);
    if (status != PROGRAM_DONE) return status;
    ranks_board_step(l->t->state->step, MPI_Wtime() - begin);
    return PROGRAM_DONE;
}

static int answer_save_request(loop *l, const step_requests *asked) {
    dcp_error err;
    const char *by = asked->save ? "SIGUSR1" : "dcp-run";
    const uint64_t step = l->t->state->step;
    const int status = step_saves_finish(&l->saves, &err);
    if (status == DCP_OK && step_saves_are_held(&l->saves)) ranks_board_publish(step);
    ranks_board_saves_answered(asked->saves);
    if (status != DCP_OK)
        ranks_warn(l->t->rank, "%s: step %" PRIu64 " is not saved: %s", by, step, err.message);
    else
        ranks_info(l->t->rank, "%s: step %" PRIu64 " %s", by, step,
                   l->saves.saved_any ? "is saved" : "is where the run starts: nothing to save");
    return status == DCP_ERR_COMM || status == DCP_ERR_STATE ? PROGRAM_FAILED : PROGRAM_DONE;
}

/* Does the evaluation of the step from which the run resumes, if that step was saved before its
 * evaluation had ended. */
static int make_up_evaluation(loop *l) {
    trainer *t = l->t;
    const double begin = MPI_Wtime();
    step_evaluation e = {0};
    dcp_error err;
    if (!t->state->owes_evaluation || !t->eval_samples) return PROGRAM_DONE;
    ranks_info(t->rank,
               "step %" PRIu64
               " was saved before its evaluation had ended: the evaluation is done now",
               t->state->step);
    const int status = step_evaluate(t, &e, &err);
    if (status != DCP_OK) return end_failed(l, status, &err);
    if (e.done) report_evaluation(&l->report, &e, MPI_Wtime() - begin);
    if (e.done) step_saves_set_evaluation(&l->saves, &e);
    t->state->owes_evaluation = !e.done;
    return PROGRAM_DONE;
}

static int run_steps(loop *l) {
    const trainer *t = l->t;
    int status = make_up_evaluation(l);
    if (status != PROGRAM_DONE) return status;
    if (t->state->step >= t->c->max_steps && step_saves_are_complete(&l->saves)) {
        ranks_info(t->rank, "step %" PRIu64 " of max_steps %" PRIu64 " is reached: nothing to do",
                   t->state->step, t->c->max_steps);
        return PROGRAM_DONE;
    }
    uint64_t saves_answered = 0;
    while (status == PROGRAM_DONE) {
        step_requests asked = step_requests_collect(t->comm);
        const bool is_done = t->state->step >= t->c->max_steps;
        const bool owes = t->state->owes_evaluation && asked.end != RANKS_END_RESIZE;
        if (is_done && !owes) asked.end = RANKS_END_NONE; /* nothing is left for another start */
        if (asked.end == RANKS_END_RESIZE) return hand_over(l, asked.dropped);
        if (is_done || asked.end) return save_and_end(l, &asked);
        if (asked.save || asked.saves > saves_answered) status = answer_save_request(l, &asked);
        saves_answered = asked.saves;
        if (status == PROGRAM_DONE) status = time_step(l);
    }
    return status;
}

int loop_run(trainer *t) {
    loop l = {.t = t};
    dcp_error err;
    step_saves_begin(&l.saves, t);
    const int status = report_begin(&l.report, t, &err);
    if (status != DCP_OK) {
        ranks_info(t->rank, "%s", err.message);
        return report_end(&l.report, ranks_launcher_exit_status(status));
    }
    const int end = run_steps(&l);
    step_saves_wait(&l.saves);
    return report_end(&l.report, end);
}
