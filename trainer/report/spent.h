/* Where the time of a run went: a table at its end. */
#ifndef TRAINER_REPORT_SPENT_H
#define TRAINER_REPORT_SPENT_H

#include "step/trainer.h"

/* Collective. `steps` were made in `seconds`; nothing is told of a run without steps. */
void spent_tell(const trainer *t, uint64_t steps, double seconds);

#endif
