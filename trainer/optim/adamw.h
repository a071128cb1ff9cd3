/* One update of the parameters that this rank holds. */
#ifndef TRAINER_OPTIM_ADAMW_H
#define TRAINER_OPTIM_ADAMW_H

#include <jansson.h>

#include "../config/config.h"
#include "../fsdp/layout.h"
#include "../state/state.h"
#include "kernels/kernels.h"

typedef struct adamw adamw;

/* Which parameters decay follows from the configuration's no_decay. Borrows k. */
int adamw_create(const config *c, const fsdp_layout *layout, kernels *k, adamw **out,
                 dcp_error *err);
void adamw_destroy(adamw *a);

/* The update that makes step s->step + 1 of the state's parameters and moments. Frozen parameters
 * are left alone. Gradients are read times `grad_scale`. */
void adamw_step(const adamw *a, const train_state *s, double lr, double grad_scale);

#endif
