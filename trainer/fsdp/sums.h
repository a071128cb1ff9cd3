/* The partial sums of gradients that a rank keeps, and their memory. */
#ifndef TRAINER_FSDP_SUMS_H
#define TRAINER_FSDP_SUMS_H

#include "fsdp/partial.h"
#include "fsdp/plan.h"
#include <dcp/error.h>

typedef struct fsdp_sums {
    partial_sums *own;   /* [units] of the piece that this rank adds up; ends in its storage */
    partial_sums *local; /* [units] of this rank's leaves, whole */
    float **own_slots, **local_slots;
    size_t n_own, n_local;
    kernels *k;
} fsdp_sums;

/* grads: this rank's storage [grad_elems]; borrowed. fsdp_sums_destroy also after a failure. */
int fsdp_sums_create(const fsdp_plan *plan, kernels *k, float *grads, fsdp_sums *out,
                     dcp_error *err);
void fsdp_sums_destroy(fsdp_sums *s);

#endif
