/* The saves of a run, warnings about slow ranks, and proofs of the state. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <dcp/error.h>
#include <dcp/save.h>

#include "step/evaluate.h"
#include "step/update.h"

/* A run warns if saves wait for a slow rank, but only once while that rank remains slow. */

enum { STEP_SLOW_SAVES = 2, STEP_SLOW_QUIET = 10 };

/* All members are 0 at first. */
typedef struct step_slow {
    int rank;  /* the last rank that was slow */
    int saves; /* the number of consecutive saves in which it was slow */
    int quiet; /* the number of saves since then, all without a slow rank */
    bool is_reported;
} step_slow;

/* Records the report of a save. Returns true if the run has to warn about the slow rank now: if the
 * same rank was slow in STEP_SLOW_SAVES consecutive saves. Requiring several saves rules out short
 * bursts of load. Another warning about the same rank is due only after STEP_SLOW_QUIET consecutive
 * saves without a slow rank. */
bool step_slow_note(step_slow *s, const dcp_report *report);

/* Proofs of the state in memory, for --prove-every. */

typedef struct trainer trainer;

/* Returns true if --prove-every requires a proof of the state's step. */
bool step_prove_is_due(const trainer *t);

/* Collective. Computes the state id of the current state; a save of this state would have the same
 * id. Also compares the replicas that ranks hold, even if each of these ranks saves only a part.
 * DCP_ERR_MISMATCH: replicas differ. */
int step_prove(const trainer *t, uint64_t *id, dcp_error *err);

/* The saves of a run. A save is in flight during the next step or, with checkpoint.async=false,
 * happens between two steps. All functions are collective unless their comments say otherwise. */

enum { STEP_SAVE_PHASES = 1024 }; /* the largest number of phases that a trace stores per save */

typedef struct step_saves {
    trainer *t;
    uint64_t start_step; /* the step at which the run began; UINT64_MAX: it must be saved */
    bool saved_any;      /* this run has saved a step */
    bool failed;         /* the last save failed */
    bool lacks_space;    /* a save found no room; since then saves remove old steps */
    int reported_status; /* the status of the last failure that was reported */
    dev_t device;        /* on rank 0: identifies checkpoint.dir at the start, to detect a move */
    ino_t inode;         /* identifies checkpoint.dir together with `device`; 0: unknown */
    step_slow slow;      /* the slow rank, and the saves that waited for it */
    bool in_flight;      /* a save of flight_step is in flight */
    uint64_t flight_step;
    /* With a trace: the phases of the save in flight, stored by the thread that saves. */
    struct {
        double begin, end; /* on libdcp's clock, CLOCK_MONOTONIC */
        int phase;
    } phases[STEP_SAVE_PHASES];
    size_t n_phases, lost_phases;
} step_saves;

/* Allocates the memory on the device that saves of the state need, so no later step has to. Not
 * collective. */
int step_saves_prepare(const trainer *t, dcp_error *err);

/* Prepares for the saves of a run that starts at the trainer's state. If the state was loaded from
 * outside the run's stores, it need not be saved before it changes. If it was loaded from a faster
 * store, it still has to reach checkpoint.dir. */
void step_saves_begin(step_saves *s, trainer *t);

/* Sets what about.json will say about the current step, for checkpoint.keep_metric. Not
 * collective. */
void step_saves_set_results(step_saves *s, const step_result *result, const step_evaluation *e);
/* Does the same for an evaluation that is made up after the step was saved: later saves of the step
 * have its values. Those that exist do not get them, since about.json is written only once. */
void step_saves_set_evaluation(step_saves *s, const step_evaluation *e);

/* Returns true if a save is due: because a store is due, or because the last save failed. */
bool step_saves_are_due(const step_saves *s);

/* Returns true if the current state need not be saved, or is in checkpoint.dir, where the run's
 * last state has to be. */
bool step_saves_are_complete(const step_saves *s);

/* Waits for the save in flight, and starts a save of the state if one is due. Does nothing if the
 * save in flight has not ended and checkpoint.when_busy is "skip". A failure of either save is only
 * reported, because the run can continue without that save; consecutive failures of the same kind
 * are reported once. DCP_ERR_COMM: the run cannot continue. DCP_ERR_STATE: the run should not
 * continue, because checkpoint.dir was moved or removed, or has another writer; dcp-run was
 * informed. */
int step_saves_start(step_saves *s);

/* Waits for the save in flight. Then saves the state to checkpoint.dir, unless it is there already,
 * and to stores that are due. Returns after the end of that save. DCP_ERR_STATE: see
 * step_saves_start. */
int step_saves_finish(step_saves *s, dcp_error *err);

/* Returns true if the state is in some store. */
bool step_saves_are_held(const step_saves *s);

/* Saves the state so that a different number of ranks can soon load it: in the fastest store in
 * which all of those ranks will find everything. dropped: the number of hosts that these ranks
 * leave, with everything in their memory. Does nothing if that store already has the state, or if
 * the state need not be saved. Other stores that are due get it as usual. If the save fails, saves
 * the state in checkpoint.dir. */
int step_saves_hand_over(step_saves *s, int dropped, dcp_error *err);

/* Waits for the save in flight. A failure is reported. */
int step_saves_wait(step_saves *s);
