/* The end of a reduction where several groups of ranks hold the state: what travels between those
 * that hold the same shard, a column of the mesh. In one of three ways:
 *
 * - Hybrid sharding: each group has added up what its ranks computed of a run of micro-batches,
 *   and the column's ranks tell each other their groups' sums, to each one its piece of the shard.
 *   Everyone adds its piece in the order of micro-batches, and after the last run tells the others
 *   the result. So a shard crosses twice, but for a rank's own piece, where a step is one run of
 *   each group and that is one sum (fsdp_micro_batches_run).
 * - A rank that has its piece of the sum already, since all ranks have sent it theirs, tells the
 *   others.
 * - The ring: the transport adds.
 *
 * One unit crosses at a time, and the results of the unit before it. */
#pragma once

#include "fsdp/fsdp_plan.h"
#include "fsdp/sum_order.h"
#include "fsdp/transport.h"

typedef struct fsdp_across fsdp_across;

/* grads: this rank's storage, where the sums end. All is borrowed. */
int fsdp_across_create(const fsdp_plan *plan, fsdp_transport *transport, kernels *k, float *grads,
                       fsdp_across **out, dcp_error *err);
void fsdp_across_destroy(fsdp_across *a); /* NULL is ignored */

/* Collective over the column. Sends this group's sums of a unit's shard, of the run that ends with
 * micro-step `micro`, which are in `sums`; it is empty on return, and its memory free again. */
void fsdp_across_exchange(fsdp_across *a, size_t unit, uint64_t micro, fsdp_sum_counter *sums);
/* Likewise: sends this rank's piece, which stands in `grads`. */
void fsdp_across_spread(fsdp_across *a, size_t unit);
/* Likewise: adds up the shards that stand in `grads`. */
void fsdp_across_add(fsdp_across *a, size_t unit);
/* Lets transfers proceed; cheap. */
void fsdp_across_poll(fsdp_across *a);
/* Waits for all that was begun: the sums stand in the shards. */
void fsdp_across_finish(fsdp_across *a);
/* Elements that this rank has sent since the creation. */
uint64_t fsdp_across_sent(const fsdp_across *a);
