/* What of the machine would have nothing to do. */
#pragma once

#include <mpi.h>

#include "config/config.h"
#include "kernels/kernels.h"

/* Rank 0 warns where there are fewer micro-batches than ranks: such a rank holds its part of the
 * state, and waits for the others. */
void setup_idle_warn_of_ranks(const config *c, int rank, int world);

/* Collective: tells where this host has more cores than ranks, and a step work for more. A rank
 * computes on one core, whatever OMP_NUM_THREADS says: equal bits rest on that. */
void setup_idle_tell_cores(const kernels *k, const config *c, MPI_Comm comm);
