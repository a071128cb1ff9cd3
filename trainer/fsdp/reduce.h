/* Sums gradients over micro-batches into the ranks' shards, with the same bits on any number of
 * ranks and with any strategy but the ring. A unit's gradients travel during other computation;
 * they are added up after all have arrived. */
#pragma once

#include "fsdp/fsdp_plan.h"
#include "fsdp/transport.h"
#include "timeline/timeline.h"

typedef struct fsdp_reduce fsdp_reduce;

/* grads: this rank's storage [grad_elems], which receives the sums. tl: records reductions; may be
 * NULL. All pointers are borrowed. */
int fsdp_reduce_create(const fsdp_plan *plan, fsdp_transport *transport, kernels *k, timeline *tl,
                       float *grads, fsdp_reduce **out, dcp_error *err);
void fsdp_reduce_destroy(fsdp_reduce *r);

/* Collective. Begins to add a unit's gradients of micro-step `micro` to the sums; finishes the
 * previous unit first. Does nothing for a unit that is entirely frozen.
 *
 * whole: the gradients of this rank's micro-batch. Overwritten, and can be reused on return unless
 * `scratch` is NULL. Ignored if the rank has no micro-batch in this micro-step. On a single rank,
 * the gradients of micro-step 0 may be in `grads`, which receives the sums.
 *
 * scratch: [gathered_grad_elems], in use until the unit is finished. May be NULL if a shard is the
 * whole unit; then `whole` is in use until the unit is finished. */
void fsdp_reduce_start(fsdp_reduce *r, size_t unit, uint64_t micro, float *whole, float *scratch);
/* Lets transfers proceed. Cheap. */
void fsdp_reduce_poll(fsdp_reduce *r);
/* Collective. Waits for the gradients in flight and adds them up. After the last unit of the last
 * micro-step, the shards contain the sums. */
void fsdp_reduce_finish(fsdp_reduce *r);

/* The number of bytes that this rank has sent since `r` was created, and how many of them went to
 * other groups of ranks that hold the state. */
uint64_t fsdp_reduce_sent_bytes(const fsdp_reduce *r);
uint64_t fsdp_reduce_across_bytes(const fsdp_reduce *r);
