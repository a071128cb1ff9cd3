/* The steps of a run. */
#pragma once

typedef struct trainer trainer;

/* Collective: trains until the last step, or until a signal asks to stop. An exit status; failures
 * have been told. */
int loop_run(trainer *t);
