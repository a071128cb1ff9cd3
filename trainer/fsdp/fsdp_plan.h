/* What a rank needs and sends, as a function of layout and strategy: for the buffers themselves,
 * and for predictions without a single rank started. */
#ifndef TRAINER_FSDP_FSDP_PLAN_H
#define TRAINER_FSDP_FSDP_PLAN_H

#include "fsdp/micro_batches.h"
#include "fsdp/shard_layout.h"
#include "fsdp/strategy.h"

/* All that the computation of a step depends on, apart from the model. `layout` is of the rank that
 * is asked about. */
typedef struct fsdp_plan {
    const fsdp_layout *layout;
    fsdp_strategy strategy;
    uint64_t micro_batches; /* of a step, all ranks together */
    uint64_t slot_bytes;    /* what the optimizer keeps for each element of a gradient */
    int offloads;           /* parameters and slots lie in a file, or apart */
    int is_apart;  /* they do in memory that kernels are slow to reach, so that units are gathered
                      even if a shard is all of them */
    int is_shared; /* the ranks of a group hold gathered units once, in memory of their host */
} fsdp_plan;

/* Buffers, in elements of fp32; 0: none. What is gathered where it is stored needs none. */
typedef struct fsdp_sizes {
    uint64_t root_grads, block_grads; /* a micro-batch's gradient of the root, of the largest block;
                                         0 where it is made in the storage */
    uint64_t root;                    /* the root, gathered */
    size_t n_blocks;                  /* gathered blocks at once: */
    uint64_t block;                   /* each; perhaps also its gradient on its way */
    uint64_t kept_blocks;             /* or instead all blocks, gathered */
    size_t n_flights;                 /* units on their way at once, at most */
    size_t n_staging;                 /* those that take a buffer of their own: */
    uint64_t first_staging;           /* the first one's; also the root's gradient on its way */
    uint64_t staging;                 /* of each other */
    uint64_t outgoing;                /* a unit's gradient on its way, where it needs its own */
    uint64_t received;                /* what a reduction brings */
    size_t n_own_sums, n_local_sums;  /* partial sums that have memory of their own: */
    uint64_t own_sum;                 /* of the gradients that this rank adds up, all units */
    uint64_t local_sum;               /* of a whole gradient of the model */
} fsdp_sizes;

fsdp_sizes fsdp_plan_sizes(const fsdp_plan *plan);

/* Memory of the rank, in bytes. */
typedef struct fsdp_memory {
    uint64_t state; /* its storage of parameters, gradients and slots; but what is */
    uint64_t offloaded;
    uint64_t units;  /* gathered units, a micro-batch's gradients, and both on their way; of them */
    uint64_t shared; /* what the ranks of a group have together, of units or parameters */
    uint64_t partial; /* partial sums of gradients */
} fsdp_memory;

fsdp_memory fsdp_plan_memory(const fsdp_plan *plan);
/* Partial sums of the rank that has most of them, in bytes. */
uint64_t fsdp_plan_most_partial(const fsdp_plan *plan);

/* Bytes that the rank sends in a step: its part of each gather goes to every other rank of its
 * group, pieces of a gradient go to those that add them up. What MPI forwards for others is not
 * counted twice; what others read in shared memory counts as sent to them. */
typedef struct fsdp_traffic {
    uint64_t gathers, reductions;
} fsdp_traffic;

fsdp_traffic fsdp_plan_traffic(const fsdp_plan *plan);

fsdp_micro_batches fsdp_plan_micro_batches(const fsdp_plan *plan);

/* The order in which a micro-step gathers blocks: forwards, and, where they do not stay, back again
 * but for the last, which is still there. */
size_t fsdp_plan_gathers(const fsdp_plan *plan, uint64_t micro);
size_t fsdp_plan_gather(const fsdp_plan *plan, size_t i); /* the unit of the i-th */

/* Of a parameter on its way. */
uint64_t fsdp_param_bytes(int bf16);

/* Elements that the rank sends for one gather of a unit; for one reduction of it (a sum of
 * micro-batches, or the ring's one); and for spreading its sums to those that hold the same shard.
 */
uint64_t fsdp_gather_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_reduce_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_ring_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_spread_sends(const fsdp_layout *layout, size_t unit);

#endif
