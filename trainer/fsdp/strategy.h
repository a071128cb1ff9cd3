/* How a run spreads its state over ranks. All strategies but `ring` give the same bits.
 *
 *   stage  parameters                 gradients                        slots
 *   3      a unit at a time           reduced after each micro-step    of a shard
 *   2      whole                      reduced after each micro-step    of a shard
 *   1      whole                      kept whole, reduced once a step  of a shard
 *   0      whole                      kept whole, reduced once a step  whole
 *
 * Each rank updates a shard of the parameters. Where all of them stay gathered, the shard is a part
 * of the whole and has no memory of its own, unless parameters are offloaded. Ranks form `replicas`
 * groups of consecutive ranks; each group holds the state once. Stage 0 is as many replicas as
 * ranks. */
#pragma once

#include <stdint.h>

#include <dcp/error.h>

typedef struct config config;

enum { FSDP_MOST_AHEAD = 32 }; /* transports have room for twice as much */

typedef struct fsdp_strategy {
    int replicas;        /* divides the number of ranks */
    int keep_params;     /* a block that was gathered stays until the update */
    int in_place;        /* parameters that stay are stored where they are gathered */
    int local_sums;      /* a rank adds up its own micro-batches, and reduces once a step */
    int overlap;         /* a unit's gradients travel while the next one computes */
    int ring;            /* reductions by MPI's order of additions, which depends on the ranks */
    int bf16;            /* gathers round parameters to it, and send half the bytes */
    uint64_t prefetch;   /* units that are gathered ahead; FSDP_MOST_AHEAD at most */
    uint64_t min_params; /* units are blocks joined until they have as many parameters; 0: a block
                            is a unit */
} fsdp_strategy;

/* What the configuration asks for on `world` ranks. DCP_ERR_ARG: fsdp.replicas does not divide
 * them, or contradicts the stage. */
int fsdp_strategy_of(const config *c, int world, fsdp_strategy *out, dcp_error *err);
