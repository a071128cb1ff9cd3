/* Steps, lines and saves. A step's line is written before the step is saved: what a resumed run
 * finds saved has its line. */
#include <inttypes.h>

#include "common/say.h"
#include "loop/lasting.h"
#include "report/report.h"
#include "step/evaluate.h"
#include "step/saves.h"
#include "step/signals.h"
#include "step/trainer.h"
#include "step/update.h"

typedef struct loop {
    trainer *t;
    report report;
    saves saves;
} loop;

/* The save with which the run ends: `done` where it succeeds. */
static int save_and_end(loop *l, int done) {
    const trainer *t = l->t;
    const char *why = done == EXIT_STOPPED ? "stopped by SIGTERM" : "done";
    dcp_error err;
    const int status = saves_finish(&l->saves, &err);
    if (status != DCP_OK) {
        if (status == DCP_ERR_NO_SPACE) lasting_tell(t->rank, "there is no room for another step");
        say(t->rank, "%s, but step %" PRIu64 " could not be saved: %s", why, t->state->step,
            err.message);
        return EXIT_FAILED;
    }
    if (l->saves.saved_any)
        say(t->rank, "%s: step %" PRIu64 " is saved in %s", why, t->state->step, t->c->dir);
    else
        say(t->rank, "%s at step %" PRIu64 ", before anything was to be saved", why,
            t->state->step);
    return done;
}

static int is_save_due(const loop *l) {
    if (l->t->state->step == l->t->c->max_steps) return 0; /* the run's last save follows */
    return saves_are_due(&l->saves);
}

/* One step and what follows it; EXIT_DONE: go on. */
static int advance(loop *l) {
    step_result r = {0};
    evaluation e = {0};
    dcp_error err;
    int status = step_run(l->t, &r, &err);
    if (status == DCP_OK && evaluate_is_due(l->t)) status = evaluate(l->t, &e, &err);
    if (status != DCP_OK) {
        say(l->t->rank, "%s", err.message);
        if (status == DCP_ERR_STATE) lasting_tell(l->t->rank, err.message);
        return status == DCP_ERR_ARG ? EXIT_USAGE : EXIT_FAILED; /* data that no restart mends */
    }
    report_step(&l->report, &r, &e);
    return is_save_due(l) && saves_start(&l->saves) != DCP_OK ? EXIT_FAILED : EXIT_DONE;
}

static int answer_save_request(loop *l) {
    dcp_error err;
    const uint64_t step = l->t->state->step;
    const int status = saves_finish(&l->saves, &err);
    if (status != DCP_OK)
        say_warning(l->t->rank, "SIGUSR1: step %" PRIu64 " is not saved: %s", step, err.message);
    else
        say(l->t->rank, "SIGUSR1: step %" PRIu64 " %s", step,
            l->saves.saved_any ? "is saved" : "is where the run starts: nothing to save");
    return status == DCP_ERR_COMM ? EXIT_FAILED : EXIT_DONE;
}

static int run_steps(loop *l) {
    const trainer *t = l->t;
    if (t->state->step >= t->c->max_steps && saves_are_complete(&l->saves)) {
        say(t->rank, "step %" PRIu64 " of max_steps %" PRIu64 " is reached: nothing to do",
            t->state->step, t->c->max_steps);
        return EXIT_DONE;
    }
    int status = EXIT_DONE;
    while (status == EXIT_DONE) {
        const signal_requests asked = signals_take(t->comm);
        if (asked.stop) return save_and_end(l, EXIT_STOPPED);
        if (t->state->step >= t->c->max_steps) return save_and_end(l, EXIT_DONE);
        if (asked.save) status = answer_save_request(l);
        if (status == EXIT_DONE) status = advance(l);
    }
    return status;
}

int trainer_loop(trainer *t) {
    loop l = {.t = t};
    dcp_error err;
    saves_begin(&l.saves, t);
    const int status = report_begin(&l.report, t, &err);
    if (status != DCP_OK) {
        say(t->rank, "%s", err.message);
        return report_end(&l.report, status == DCP_ERR_NO_MEMORY ? EXIT_FAILED : EXIT_USAGE);
    }
    const int end = run_steps(&l);
    saves_settle(&l.saves);
    return report_end(&l.report, end);
}
