/* One optimizer update. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "models/sample.h"
#include <dcp/error.h>

typedef struct trainer trainer;

typedef struct step_result {
    double loss, grad_norm, lr;       /* as computed in this step, before its update */
    double losses[SAMPLE_MAX_LOSSES]; /* `loss` is their weighted sum */
    uint64_t skipped;  /* the number of batches that were skipped right before the batch of this
                          step, because no target in them counts */
    bool is_proven;    /* whether state_id is valid (step_prove) */
    uint64_t state_id; /* the state's id after the update */
} step_result;

/* Collective. Advances trainer->state by one step. After a failure other than DCP_ERR_DEVICE, the
 * state is still as the last step left it, because only the update at the end changes parameters
 * and the optimizer's state. DCP_ERR_DEVICE: the update itself failed, and the state is not
 * usable. */
int step_update(trainer *t, step_result *out, dcp_error *err);

/* Collective. Returns true if all trained parameters are finite numbers. */
bool step_state_is_finite(const trainer *t);

/* If the run computes on a device, sets the timeline's seconds of forward passes, backward passes
 * and updates to the time that the device needed for the passes and updates that it has completed.
 * Does not wait. step_update calls this function at its end, when the device has completed
 * everything except the update. */
void step_collect_device_times(trainer *t);
