/* The norm of a gradient in shards, and the exact sums that it is computed from. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsdp/shard_layout.h"
#include "kernels/kernels.h"
#include "kernels/limbs.h"

/* The exact sum of doubles: a fixed-point number wide enough for all of them. The order of integer
 * additions does not matter, so a sum over ranks has the same bits however the values are
 * distributed. */

enum { EXACT_LIMBS = KERNELS_LIMBS };

typedef struct exact_sum {
    /* Value = sum of limbs[i] * 2^(32 i - 1074), without the last limb, which counts infinities and
     * NaNs. */
    uint64_t limbs[EXACT_LIMBS + 1];
    uint64_t pending; /* additions since all limbs were last less than 2^32 */
} exact_sum;

/* Adds x, which must be >= 0 or not finite. A zeroed exact_sum is 0. */
void optim_exact_add(exact_sum *sum, double x);
/* Makes all limbs less than 2^32, so that up to 2^31 sums can be added limb by limb. */
void optim_exact_carry(exact_sum *sum);
/* The nearest double, ties to even; NaN if a value was not finite. */
double optim_exact_value(exact_sum *sum);
/* Collective. The value of the sum over all ranks, the same on each. */
double optim_exact_sum_of_ranks(exact_sum *sum, MPI_Comm comm);

/* The number of bytes that the functions below require of `scratch`. */
size_t optim_norm_scratch_bytes(const fsdp_layout *layout);

/* The L2 norm over all shards of all ranks: each row's sum of squares is computed in fp64 in a
 * fixed order, and the rows' sums are added exactly. Collective; gives the same bits on every rank
 * and for any number of ranks. NaN if an element is not finite. grads, scratch: memory of k. */
double optim_norm_of_shards(const fsdp_layout *layout, kernels *k, MPI_Comm comm,
                            const float *grads, void *scratch);

/* Collective. Returns true if all trained parameters of all ranks of `comm` are finite. */
bool optim_is_finite(const fsdp_layout *layout, kernels *k, MPI_Comm comm, const float *params,
                     void *scratch);
