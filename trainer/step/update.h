/* One optimizer update. */
#pragma once

#include <stdint.h>

#include "models/sample.h"
#include <dcp/error.h>

typedef struct trainer trainer;

typedef struct step_result {
    double loss, grad_norm, lr;        /* as computed in this step, before its update */
    double losses[SAMPLE_MOST_LOSSES]; /* of which the loss is the weighted sum */
    uint64_t skipped;                  /* batches before its own, of which nothing counts */
    int is_proven;                     /* after it (prove.h): */
    uint64_t state_id;
} step_result;

/* Collective: moves trainer->state on by one step. On failure the state is still that of the last
 * step, since only the update at the end changes parameters and the optimizer's state. */
int step_update(trainer *t, step_result *out, dcp_error *err);

/* Collective: whether the parameters that are trained are all numbers, and none infinite. */
int step_state_is_finite(const trainer *t);

/* Where a device computes, takes its seconds of forward, backward and optimizer into the timeline,
 * as far as it has come: waits for nothing. step_update does so at its end, when all but the update
 * is over. */
void step_take_device_times(trainer *t);
