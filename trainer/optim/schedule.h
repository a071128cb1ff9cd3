/* Learning rates over a run. */
#pragma once

#include <stdint.h>

#include "config/config.h"

/* The rate of update `step`, from 1. Warm-up reaches lr at its last step: it rises linearly, or as
 * DeepSpeed's with the logarithm of the step, from 0 at step 1. The decays reach lr * min_lr_ratio
 * at max_steps and stay there: linear, cosine   from the end of the warm-up wsd linear, over the
 * last decay_ratio of max_steps */
double optim_schedule_lr(const config *c, uint64_t step);
