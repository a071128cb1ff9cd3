/* The saves of a run: in flight beside the next step, or, with checkpoint.async=false, by
 * themselves. All functions are collective. */
#ifndef TRAINER_LOOP_SAVES_H
#define TRAINER_LOOP_SAVES_H

#include "trainer.h"

typedef struct saves {
    trainer *t;
    uint64_t saved_step;  /* that the state need not be saved at: loaded, or saved by this run */
    int saved_any;        /* this run saved one */
    int failed;           /* the last save did */
    uint64_t flight_step; /* of trainer->flight */
    double stall_s;       /* that training waited for saves, since it was last set to 0 */
} saves;

/* Starts a save of the state, where it is not saved, after the end of the one in flight; where that
 * has not ended and checkpoint.when_busy is "skip", does nothing. A failure, of either, is told:
 * the run can do without this save. DCP_ERR_COMM: the run can't go on. */
int saves_start(saves *s);

/* Saves the state, where it is not saved, and waits for the end. */
int saves_finish(saves *s, dcp_error *err);

/* Waits for the save in flight; a failure is told. */
int saves_settle(saves *s);

#endif
