/* The saves of a run: in flight beside the next step, or in the step's own time; slow ranks, and
 * proofs of the state. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <dcp/error.h>
#include <dcp/save.h>

/* When a run tells that saves wait for a slow rank: once, as long as it stays slow. */

enum { STEP_SLOW_SAVES = 2, STEP_SLOW_QUIET = 10 };

/* All 0 at first. */
typedef struct step_slow {
    int rank;  /* that was slow last */
    int saves; /* in which it was, one after the other */
    int quiet; /* saves since then without a slow rank */
    int told;
} step_slow;

/* Takes the report of a save. Whether its slow rank is to be told of now: it has been the slow one
 * in STEP_SLOW_SAVES saves after each other, so that a moment's load says nothing, and was not told
 * of since nobody was slow in STEP_SLOW_QUIET saves. */
int step_slow_note(step_slow *s, const dcp_report *report);

/* Proofs of the state in memory, for --prove-every. */

typedef struct trainer trainer;

/* Whether the step that the state is at is to be proven. */
int step_prove_is_due(const trainer *t);

/* Collective: the state id of the state as it is, which a save of it has, too; and ranks that hold
 * the same are compared, also where each of them saves a part of it. DCP_ERR_MISMATCH: they differ.
 */
int step_prove(const trainer *t, uint64_t *id, dcp_error *err);

/* The saves of a run: in flight beside the next step, or, with checkpoint.async=false, by
 * themselves. All functions are collective, unless they say otherwise. */

typedef struct trainer trainer;

enum { STEP_SAVE_PHASES = 1024 }; /* that a trace keeps of a save */

typedef struct step_saves {
    trainer *t;
    uint64_t start_step; /* where the run began, if the state need not be saved there */
    int saved_any;       /* this run saved one */
    int failed;          /* the last save did */
    int lacks_room;      /* one found no room: from then on old steps are given up for saves */
    int told;            /* with this status, which need not be told again */
    dev_t device;        /* of rank 0: checkpoint.dir as the run began, which a person may move */
    ino_t inode;         /* 0: not known */
    step_slow slow;      /* who was, in the saves so far */
    int flying;          /* one is in flight, of */
    uint64_t flight_step;
    /* With a trace: the last save's, filled in by the thread that saves. */
    struct {
        double begin, end; /* by the library's clock */
        int phase;
    } phases[STEP_SAVE_PHASES];
    size_t n_phases, lost_phases;
} step_saves;

/* Takes what saves of the trainer's state need of its device, so that no step has to. Not
 * collective. */
int step_saves_prepare(const trainer *t, dcp_error *err);

/* For a run that begins at the trainer's state. What was loaded from elsewhere need not be saved as
 * it is; what was loaded from a faster store has yet to come to checkpoint.dir. */
void step_saves_begin(step_saves *s, trainer *t);

/* Whether a save is due: of some store, or because the last one failed. */
int step_saves_are_due(const step_saves *s);

/* Whether the state is where the run's last save has to be, or need not be there. */
int step_saves_are_complete(const step_saves *s);

/* Starts a save of the state, where it is not saved, after the end of the one in flight; where that
 * has not ended and checkpoint.when_busy is "skip", does nothing. A failure, of either, is told,
 * once for several of the same kind: the run can do without this save. DCP_ERR_COMM: the run can't
 * go on. DCP_ERR_STATE, told to dcp-run as well: it should not, as checkpoint.dir was moved or
 * removed, or another writer has it. */
int step_saves_start(step_saves *s);

/* Saves the state to checkpoint.dir, where it is not saved there, and to stores that are due, and
 * waits for the end. DCP_ERR_STATE as above. */
int step_saves_finish(step_saves *s, dcp_error *err);

/* Whether the state is in some store. */
int step_saves_are_held(const step_saves *s);

/* Saves the state where ranks of another number can load it soon: into the fastest store that all
 * of them will see all of, unless one has it, or it need not be saved. Stores that are due get it
 * as ever. Where that fails, into checkpoint.dir. */
int step_saves_hand_over(step_saves *s, dcp_error *err);

/* Waits for the save in flight; a failure is told. */
int step_saves_settle(step_saves *s);
