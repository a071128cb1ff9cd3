/* What a rank needs and sends in a step, as a function of layout and strategy. Buffers are
 * allocated by it, and --plan predicts by it, without starting a rank. */
#pragma once

#include "fsdp/shard_layout.h"
#include "fsdp/strategy.h"
#include "fsdp/sum_order.h"

/* All that the computation of a step depends on, apart from the model. `layout` is of the rank that
 * is asked about. */
typedef struct fsdp_plan {
    const fsdp_layout *layout;
    fsdp_strategy strategy;
    uint64_t micro_batches; /* of a step, all ranks together */
    uint64_t slot_bytes;    /* what the optimizer keeps for each element of a gradient */
    int offloads;           /* parameters and slots lie in a file, or in the host's memory */
    int is_on_host; /* the latter, which kernels are slow to reach: units are gathered from there
                       even if a shard is all of the unit */
    int is_shared;  /* ranks of a group share one copy of gathered units, in memory of their host */
} fsdp_plan;

/* Whether gradients are added up within each group of ranks first, and the groups' sums then:
 * groups of several ranks hold the state each, and micro-batches come out even
 * (fsdp_micro_batches_of). The ring does that by itself, in an order of its own. */
int fsdp_plan_is_hybrid(const fsdp_plan *plan);

/* Sizes of buffers in elements of fp32; 0: there is none. What is stored where it is gathered needs
 * none. */
typedef struct fsdp_sizes {
    uint64_t root_grads;    /* a micro-batch's gradient of the root; 0: it is made in the storage */
    uint64_t block_grads;   /* the same of the largest block */
    uint64_t root;          /* the root, gathered */
    size_t n_blocks;        /* gathered blocks at once, of `block` elements each */
    uint64_t block;         /* where there is no `outgoing`, also for its gradient in flight */
    uint64_t kept_blocks;   /* instead of these, all blocks, gathered */
    size_t n_flights;       /* units that are gathered at once, at most */
    size_t n_staging;       /* those of them that take a staging buffer */
    uint64_t first_staging; /* the first one's; the root's gradient in flight uses it, too */
    uint64_t staging;       /* each other one's */
    uint64_t outgoing;      /* a unit's gradient in flight, where it needs memory of its own */
    uint64_t received;      /* what a reduction brings */
    uint64_t outbound;      /* sums of a group on their way to other groups, and what comes of */
    uint64_t crossed;       /* theirs */
    /* Partial sums that have memory of their own, and the size of each over all units: */
    uint64_t n_own_sums, own_sum;       /* of what this rank adds up of all, or of its group's */
    uint64_t n_local_sums, local_sum;   /* of its own micro-batches, whole */
    uint64_t n_across_sums, across_sum; /* of what groups send each other */
} fsdp_sizes;

fsdp_sizes fsdp_plan_sizes(const fsdp_plan *plan);

/* Memory of the rank, in bytes. */
typedef struct fsdp_memory {
    uint64_t state;     /* its parameters, gradients and slots, without */
    uint64_t offloaded; /* those that are offloaded */
    uint64_t units;     /* gathered units, a micro-batch's gradients, and both in flight */
    uint64_t shared;    /* the part of parameters or units that the ranks of a group share */
    uint64_t partial;   /* partial sums of gradients */
} fsdp_memory;

fsdp_memory fsdp_plan_memory(const fsdp_plan *plan);
/* Bytes that the rank sends in a step: its part of each gather goes to every other rank of its
 * group, pieces of a gradient go to those that add them up. What MPI forwards for others is not
 * counted twice; what others read in shared memory counts as sent to them. */
typedef struct fsdp_traffic {
    uint64_t gathers, reductions;
    uint64_t across; /* the part of them that goes to other groups */
} fsdp_traffic;

fsdp_traffic fsdp_plan_traffic(const fsdp_plan *plan);

fsdp_micro_batches fsdp_plan_micro_batches(const fsdp_plan *plan);

/* The order in which a micro-step gathers blocks: forwards and, where they do not stay, backwards
 * without the last one, which is still there. */
size_t fsdp_plan_gathers(const fsdp_plan *plan, uint64_t micro);
size_t fsdp_plan_gather(const fsdp_plan *plan, size_t i); /* the unit of the i-th */

/* Bytes of a parameter that is sent. */
uint64_t fsdp_param_bytes(int bf16);

/* Elements that the rank sends for one gather of a unit; for one reduction of it, a sum of
 * micro-batches, to all ranks, or with hybrid sharding to those of its group, as the ring's one is
 * to, and the part of them that leaves the group; and to those that hold the same shard, of each
 * sum of its group's, and of the result. */
uint64_t fsdp_gather_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_reduce_sends(const fsdp_layout *layout, int is_hybrid, size_t unit);
uint64_t fsdp_reduce_leaves(const fsdp_layout *layout, int is_hybrid, size_t unit);
uint64_t fsdp_ring_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_across_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_spread_sends(const fsdp_layout *layout, size_t unit);
