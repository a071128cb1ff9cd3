/* The exact sum of doubles: a fixed-point number wide enough for all of them. Integer addition has
 * no order, so that a sum over ranks has the same bits however the values are spread. */
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/limbs.h"

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
