/* The last part of a reduction, if several groups of ranks hold the state: the exchange between
 * ranks that hold the same shard (a column of the mesh). There are three ways:
 *
 * - With hybrid sharding, each group has added up its ranks' gradients for a run of micro-batches.
 *   The ranks of a column send each other their groups' sums: each rank receives its piece of the
 *   shard, adds the pieces in the order of micro-batches, and sends the result to the others after
 *   the last run. In the simplest case, a step has one run per group, and the gradients of the run
 *   form a single sum (fsdp_micro_batches_run). Then each shard is sent between groups twice,
 *   except for a rank's own piece.
 * - Without hybrid sharding, all ranks have already sent this rank its piece of the gradients. This
 *   rank sends the sum to the other ranks of the column.
 * - With the ring, the transport adds the groups' sums.
 *
 * The sums of a unit can be in flight at the same time as the results of the previous unit. */
#pragma once

#include "fsdp/fsdp_plan.h"
#include "fsdp/sum_order.h"
#include "fsdp/transport.h"

typedef struct fsdp_across fsdp_across;

/* grads: this rank's storage, which receives the sums. All pointers are borrowed. */
int fsdp_across_create(const fsdp_plan *plan, fsdp_transport *transport, kernels *k, float *grads,
                       fsdp_across **out, dcp_error *err);
void fsdp_across_destroy(fsdp_across *a); /* NULL is ignored */

/* Collective over the column. Sends this group's sums of a unit's shard for the run that ends with
 * micro-step `micro`. They are in `sums`, which is empty on return, so its memory can be reused. */
void fsdp_across_exchange(fsdp_across *a, size_t unit, uint64_t micro, fsdp_sum_counter *sums);
/* Collective over the column. Sends the sum of this rank's piece, which is in `grads`, to the
 * others. */
void fsdp_across_broadcast(fsdp_across *a, size_t unit);
/* Collective over the column. Adds up the column's sums of the shard, which are in `grads`. */
void fsdp_across_add(fsdp_across *a, size_t unit);
/* Lets transfers proceed. Cheap. */
void fsdp_across_poll(fsdp_across *a);
/* Completes all work that has begun. After that, the shards contain the sums. */
void fsdp_across_finish(fsdp_across *a);
/* The number of elements that this rank has sent since `a` was created. */
uint64_t fsdp_across_sent(const fsdp_across *a);
