/* The steps of a run. */
#ifndef TRAINER_LOOP_LOOP_H
#define TRAINER_LOOP_LOOP_H

typedef struct trainer trainer;

/* Collective: trains until the last step, or until a signal asks to stop. An exit status; failures
 * have been told. */
int loop_run(trainer *t);

#endif
