/* How a run distributes its state over ranks. All strategies but `ring` give the same bits.
 *
 *   stage  parameters          gradients                             slots
 *   3      one unit at a time  reduced after each micro-step         of a shard
 *   2      whole               reduced after each micro-step         of a shard
 *   1      whole               kept whole, reduced once per step     of a shard
 *   0      whole               kept whole, reduced once per step     whole
 *
 * Each rank updates a shard of the parameters. If all parameters stay gathered, the shard is a part
 * of the gathered model and needs no memory of its own, unless parameters are offloaded. Ranks form
 * `replicas` groups of consecutive ranks; each group holds the state once. At stage 0 there are as
 * many replicas as ranks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <dcp/error.h>

typedef struct config config;

enum { FSDP_MAX_AHEAD = 32 }; /* transports have room for twice as many */

typedef struct fsdp_strategy {
    int replicas;      /* divides the number of ranks */
    bool keep_params;  /* a gathered block stays gathered until the update */
    bool in_place;     /* parameters that stay gathered are stored where they are gathered */
    bool local_sums;   /* a rank adds up its own micro-batches, and reduces once per step */
    bool overlap;      /* a unit's gradients travel while the next unit computes */
    bool ring;         /* reductions use MPI's order of additions, which depends on the ranks */
    bool bf16;         /* gathers round parameters to bf16, and send half the bytes */
    uint64_t prefetch; /* units that are gathered ahead; at most FSDP_MAX_AHEAD */
    /* Blocks are joined into units of at least this many parameters; 0 if each block is a unit. */
    uint64_t min_params;
} fsdp_strategy;

/* The strategy that the configuration selects for `world` ranks. DCP_ERR_ARG: fsdp.replicas does
 * not divide `world`, or contradicts the stage. */
int fsdp_strategy_of(const config *c, int world, fsdp_strategy *out, dcp_error *err);
