/* The steps of a run. */
#pragma once

typedef struct trainer trainer;

/* Collective. Trains until the last step, or until a signal requests a stop. Returns an exit
 * status; failures have already been reported. */
int loop_run(trainer *t);
