/* Summing gradients over leaves, into the shards of those that hold them, with the same bits on any
 * number of ranks and by any strategy but the ring. */
#ifndef TRAINER_FSDP_REDUCE_H
#define TRAINER_FSDP_REDUCE_H

#include "mesh.h"
#include "partial.h"
#include "plan.h"

typedef struct fsdp_reduce fsdp_reduce;

/* grads: this rank's storage [grad_elems], where the sums end. All is borrowed. */
int fsdp_reduce_create(const fsdp_plan *plan, const fsdp_mesh *mesh, kernels *k, float *grads,
                       fsdp_reduce **out, dcp_error *err);
void fsdp_reduce_destroy(fsdp_reduce *r);

/* Collective: adds a unit's gradients of micro-step `micro` to the sums; after the last one they
 * stand in the shards. Does nothing for a unit that is all frozen.
 *   whole    this rank's leaf's; used up. Ignored where the rank has no leaf in this micro-step.
 *   scratch  [gathered_grad_elems]; unused where a shard is the whole unit */
void fsdp_reduce_unit(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole, float *scratch);

/* Bytes that this rank has sent since the creation. */
uint64_t fsdp_reduce_sent_bytes(const fsdp_reduce *r);

#endif
