/* The norm of a gradient that lies in shards, and whether the parameters are numbers. */
#pragma once

#include <mpi.h>

#include "fsdp/shard_layout.h"
#include "kernels/kernels.h"

/* What `scratch` below takes, in the memory of the kernels. */
size_t optim_norm_scratch_bytes(const fsdp_layout *layout);

/* The L2 norm over all shards of all ranks: each row's sum of squares in fp64 in an order of its
 * own, the rows added exactly. Collective; the same bits on every rank and any number of ranks. NaN
 * where an element is not finite. grads, scratch: memory of k. */
double optim_norm_of_shards(const fsdp_layout *layout, kernels *k, MPI_Comm comm,
                            const float *grads, void *scratch);

/* Whether all trained parameters are finite, of all ranks of `comm`. Collective. */
int optim_is_finite(const fsdp_layout *layout, kernels *k, MPI_Comm comm, const float *params,
                    void *scratch);
