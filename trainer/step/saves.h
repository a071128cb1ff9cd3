/* The saves of a run: in flight beside the next step, or between steps. Also warnings about slow
 * ranks, and proofs of the state. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <dcp/error.h>
#include <dcp/save.h>

/* A run warns once that saves wait for a slow rank, as long as the rank remains slow. */

enum { STEP_SLOW_SAVES = 2, STEP_SLOW_QUIET = 10 };

/* All members are 0 at first. */
typedef struct step_slow {
    int rank;  /* the rank that was slow last */
    int saves; /* consecutive saves in which it was slow */
    int quiet; /* saves since then without a slow rank */
    int told;
} step_slow;

/* Records the report of a save. Returns true if the run has to warn about its slow rank now: if it
 * was the slow rank in STEP_SLOW_SAVES consecutive saves, so a moment's load does not count, and no
 * warning was given since the last STEP_SLOW_QUIET saves without a slow rank. */
int step_slow_note(step_slow *s, const dcp_report *report);

/* Proofs of the state in memory, for --prove-every. */

typedef struct trainer trainer;

/* Returns true if the state's step is to be proven. */
int step_prove_is_due(const trainer *t);

/* Collective. Computes the state id of the current state, which is also that of a save of it.
 * Compares ranks that hold the same, even if each of them saves only a part of it.
 * DCP_ERR_MISMATCH: they differ. */
int step_prove(const trainer *t, uint64_t *id, dcp_error *err);

/* The saves of a run: in flight beside the next step or, with checkpoint.async=false, between
 * steps. All functions are collective unless they say otherwise. */

typedef struct trainer trainer;

enum { STEP_SAVE_PHASES = 1024 }; /* of a save, for a trace */

typedef struct step_saves {
    trainer *t;
    uint64_t start_step; /* the step where the run began, if it need not be saved */
    int saved_any;       /* this run has saved a step */
    int failed;          /* the last save failed */
    int lacks_room;      /* a save found no room; since then old steps are removed for saves */
    int told;            /* the status of the failure that was reported last */
    dev_t device;   /* of rank 0: checkpoint.dir at the run's start, to detect that it was moved */
    ino_t inode;    /* 0: not known */
    step_slow slow; /* the slow rank of the saves so far */
    int flying;     /* a save of flight_step is in flight */
    uint64_t flight_step;
    /* With a trace: the phases of the last save, filled in by the thread that saves. */
    struct {
        double begin, end; /* by the library's clock */
        int phase;
    } phases[STEP_SAVE_PHASES];
    size_t n_phases, lost_phases;
} step_saves;

/* Allocates what saves of the trainer's state need of its device, so no step has to. Not
 * collective. */
int step_saves_prepare(const trainer *t, dcp_error *err);

/* Begins the saves of a run that starts at the trainer's state. A state that was loaded from
 * elsewhere need not be saved unchanged; one that was loaded from a faster store still has to reach
 * checkpoint.dir. */
void step_saves_begin(step_saves *s, trainer *t);

/* Returns true if a save is due: for some store, or because the last one failed. */
int step_saves_are_due(const step_saves *s);

/* Returns true if the state is where the run's last save has to be, or need not be saved. */
int step_saves_are_complete(const step_saves *s);

/* After the end of the save in flight, starts a save of the state if it is not saved yet. Does
 * nothing if the save in flight has not ended and checkpoint.when_busy is "skip". Failures of
 * either save are reported, once for consecutive ones of the same kind: the run can do without this
 * save. DCP_ERR_COMM: the run cannot continue. DCP_ERR_STATE, also reported to dcp-run: it should
 * not continue, because checkpoint.dir was moved or removed, or has another writer. */
int step_saves_start(step_saves *s);

/* Saves the state to checkpoint.dir, if it is not there yet, and to stores that are due, and waits
 * for the end. DCP_ERR_STATE: as for step_saves_start. */
int step_saves_finish(step_saves *s, dcp_error *err);

/* Returns true if the state is in some store. */
int step_saves_are_held(const step_saves *s);

/* Saves the state where a different number of ranks can soon load it: in the fastest store in which
 * all of them will see everything, unless a store already has it, or it need not be saved. Stores
 * that are due get it as usual. If that fails, saves it in checkpoint.dir. */
int step_saves_hand_over(step_saves *s, dcp_error *err);

/* Waits for the save in flight. A failure is reported. */
int step_saves_settle(step_saves *s);
