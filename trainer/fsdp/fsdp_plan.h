/* The memory that a rank needs and the bytes that it sends in a step, as functions of layout and
 * strategy. A run allocates buffers of these sizes, and --plan reports them without starting a
 * rank. */
#pragma once

#include <stdbool.h>

#include "fsdp/shard_layout.h"
#include "fsdp/strategy.h"
#include "fsdp/sum_order.h"

/* Everything that the computation of a step depends on, apart from the model. `layout` is the
 * layout of the rank whose memory and traffic are computed. */
typedef struct fsdp_plan {
    const fsdp_layout *layout;
    fsdp_strategy strategy;
    uint64_t micro_batches; /* the number of micro-batches per step, over all ranks */
    uint64_t slot_bytes;    /* bytes that the optimizer stores per element of a gradient */
    bool offloads;          /* parameters and slots are in a file or in the host's memory */
    /* Parameters and slots are in the host's memory, which kernels access slowly, so units are
     * gathered even if a shard is the whole unit. */
    bool is_on_host;
    /* The ranks of a group share one copy of gathered units, in their host's memory. */
    bool is_shared;
} fsdp_plan;

/* Returns true if gradients are added up within each group of ranks before the groups' sums are
 * added. That requires several groups, each of several ranks that together hold the state, and
 * micro-batches that divide evenly (fsdp_micro_batches_of). Returns false for the ring, which has
 * an order of additions of its own. */
bool fsdp_plan_is_hybrid(const fsdp_plan *plan);

/* Sizes of buffers, in elements of fp32; 0 if there is no such buffer. Parameters that are stored
 * where they are gathered need no buffer. */
typedef struct fsdp_sizes {
    uint64_t root_grads;  /* gradients of the root from one micro-batch; 0 if they are computed in
                             the storage */
    uint64_t block_grads; /* gradients of the largest block from one micro-batch */
    uint64_t root;        /* the root, gathered */
    size_t n_blocks;      /* the number of buffers for gathered blocks, of `block` elements each */
    uint64_t block; /* the largest block, gathered; later its gradient in flight if there is no
                       `outgoing` */
    uint64_t kept_blocks;   /* all gathered blocks, instead of n_blocks of them */
    size_t n_flights;       /* the largest number of units that are gathered at a time */
    size_t n_staging;       /* the number of staging buffers; 0 with shared memory */
    uint64_t first_staging; /* the first staging buffer; also holds the root's gradient in flight */
    uint64_t staging;       /* each of the other staging buffers */
    uint64_t outgoing;      /* a unit's gradient in flight, if it needs memory of its own */
    uint64_t received;      /* the gradients that this rank receives in one reduction */
    uint64_t outbound;      /* this group's sums while they are sent to other groups */
    uint64_t crossed;       /* the groups' sums that arrive */
    /* The number of partial sums that have memory of their own, and the size of each over all
     * units. */
    uint64_t n_own_sums, own_sum; /* of what this rank adds up, for all ranks or for its group */
    uint64_t n_local_sums, local_sum;   /* of the whole gradients of its own micro-batches */
    uint64_t n_across_sums, across_sum; /* of the sums that groups send each other */
} fsdp_sizes;

fsdp_sizes fsdp_plan_sizes(const fsdp_plan *plan);

/* The rank's memory, in bytes. */
typedef struct fsdp_memory {
    uint64_t state;     /* parameters, gradients and slots, except the offloaded ones */
    uint64_t offloaded; /* offloaded parameters and slots */
    uint64_t units;  /* gathered units, a micro-batch's gradients, and buffers for both in flight */
    uint64_t shared; /* the part of parameters or units that the ranks of a group share */
    uint64_t partial; /* partial sums of gradients */
} fsdp_memory;

fsdp_memory fsdp_plan_memory(const fsdp_plan *plan);
/* Bytes that the rank sends in a step. Its part of each gather goes to every other rank of its
 * group; pieces of a gradient go to the ranks that add them up. Bytes of other ranks that MPI
 * forwards through this rank are not counted. Bytes that others read in shared memory count as sent
 * to them. */
typedef struct fsdp_traffic {
    uint64_t gathers, reductions;
    uint64_t across; /* the part of both that goes to other groups */
} fsdp_traffic;

fsdp_traffic fsdp_plan_traffic(const fsdp_plan *plan);

fsdp_micro_batches fsdp_plan_micro_batches(const fsdp_plan *plan);

/* The number of gathers in a micro-step, and their order. For the forward pass, blocks are gathered
 * in ascending order. If blocks are dropped after use, they are gathered again in descending order
 * for the backward pass, except for the last one, which is still gathered. */
size_t fsdp_plan_gathers(const fsdp_plan *plan, uint64_t micro);
size_t fsdp_plan_gather(const fsdp_plan *plan, size_t i); /* the unit of gather i */

/* The number of bytes per element of a parameter when it is sent. */
uint64_t fsdp_param_bytes(bool bf16);

/* The number of elements that the rank sends:
 * - gather: for one gather of a unit.
 * - reduce: for one reduction of a unit's sum of micro-batches, to all ranks, or with hybrid
 *   sharding to the ranks of its group.
 * - leaves: the part of `reduce` that leaves the group.
 * - ring: for one reduction by the ring, within the group.
 * - across: to the ranks that hold the same shard, for each sum of its group.
 * - broadcast: to the ranks that hold the same shard, for the result. */
uint64_t fsdp_gather_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_reduce_sends(const fsdp_layout *layout, bool is_hybrid, size_t unit);
uint64_t fsdp_reduce_leaves(const fsdp_layout *layout, bool is_hybrid, size_t unit);
uint64_t fsdp_ring_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_across_sends(const fsdp_layout *layout, size_t unit);
uint64_t fsdp_broadcast_sends(const fsdp_layout *layout, size_t unit);
