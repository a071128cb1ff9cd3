/* One optimizer update. */
#ifndef TRAINER_STEP_UPDATE_H
#define TRAINER_STEP_UPDATE_H

#include <dcp/error.h>

typedef struct trainer trainer;

typedef struct step_result {
    double loss, grad_norm, lr; /* as computed in this step, before its update */
} step_result;

/* Collective: trainer->state becomes that of the next step. On failure it stays that of the last
 * one: parameters and moments are changed by the update alone, which cannot fail. */
int step_update(trainer *t, step_result *out, dcp_error *err);

#endif
