/* The norm of a gradient that lies in shards, and the exact sums that it is made of. */
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "fsdp/shard_layout.h"
#include "kernels/kernels.h"
#include "kernels/limbs.h"

/* The exact sum of doubles: a fixed-point number wide enough for all of them. Integer addition has
 * no order, so that a sum over ranks has the same bits however the values are spread. */

enum { EXACT_LIMBS = KERNELS_LIMBS };

typedef struct exact_sum {
    /* Value = sum of limbs[i] * 2^(32 i - 1074); the last counts infinities and NaNs. */
    uint64_t limbs[EXACT_LIMBS + 1];
    uint64_t pending; /* additions since the limbs were last made less than 2^32 */
} exact_sum;

/* x >= 0, or not finite. A zeroed exact_sum is 0. */
void optim_exact_add(exact_sum *sum, double x);
/* Limbs become less than 2^32, so that up to 2^31 sums may be added limb by limb. */
void optim_exact_carry(exact_sum *sum);
/* The nearest double, ties to even; NaN where something not finite was added. */
double optim_exact_value(exact_sum *sum);
/* Collective: the value of all ranks' sums together, the same on each. */
double optim_exact_sum_of_ranks(exact_sum *sum, MPI_Comm comm);

/* The norm of a gradient that lies in shards, and whether the parameters are numbers. */

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
