/* The memory in which units are computed: gathered, with a leaf's gradients, and on their way. How
 * much there is of each, fsdp_plan_sizes says. */
#ifndef TRAINER_FSDP_BUFFERS_H
#define TRAINER_FSDP_BUFFERS_H

#include "dcp/error.h"
#include "gather.h"
#include "kernels/kernels.h"
#include "plan.h"

/* NULL where there is none. */
typedef struct fsdp_buffers {
    kernels *k;
    float *root, *block, *kept; /* gathered units */
    float *root_grads, *block_grads;
    float *outgoing;      /* a block's gradients on their way */
    fsdp_flight *flights; /* units on their way */
    size_t n_flights;
    float **whole; /* [units] where a unit's parameters stand once it is gathered */
} fsdp_buffers;

/* params: this rank's storage, which holds the units where a shard is all of the state; borrowed.
 * fsdp_buffers_destroy also after a failure. */
int fsdp_buffers_create(const fsdp_plan *plan, kernels *k, float *params, fsdp_buffers *out,
                        dcp_error *err);
void fsdp_buffers_destroy(fsdp_buffers *b);

#endif
