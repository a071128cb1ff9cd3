/* Summing gradients over leaves, into the shards of their owners, with the same bits on any number
 * of ranks. In micro-step i of N ranks, rank r computes leaf i * N + r. */
#ifndef TRAINER_FSDP_REDUCE_H
#define TRAINER_FSDP_REDUCE_H

#include <mpi.h>

#include "layout.h"
#include "partial.h"

typedef struct fsdp_reduce fsdp_reduce;

/* grads: this rank's storage [grad_elems], where the sums end. All is borrowed. */
int fsdp_reduce_create(const fsdp_layout *layout, kernels *k, MPI_Comm comm, uint64_t leaves,
                       float *grads, fsdp_reduce **out, dcp_error *err);
void fsdp_reduce_destroy(fsdp_reduce *r);

/* Micro-steps of a step: leaves / world, rounded up. */
uint64_t fsdp_reduce_micro_steps(const fsdp_reduce *r);
/* Memory of the partial sums that more than one micro-step needs. */
uint64_t fsdp_reduce_partial_bytes(const fsdp_reduce *r);
/* Memory for the shards that one exchange brings. */
uint64_t fsdp_reduce_received_bytes(const fsdp_reduce *r);

/* Collective: adds a unit's gradients of micro-step `micro` to the sums; after the last one they
 * stand in the shards. Does nothing for a unit that is all frozen.
 *   whole    this rank's leaf's; used up. Ignored where the rank has no leaf in this micro-step.
 *   scratch  [gathered_grad_elems]; unused on one rank */
void fsdp_reduce_unit(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole, float *scratch);

#endif
