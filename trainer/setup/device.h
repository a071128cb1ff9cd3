/* The backend that a run computes with, and parts of the machine that would be idle. */
#pragma once

#include <mpi.h>

#include <dcp/device.h>

#include "config/config.h"
#include "kernels/kernels.h"

/* The backend that a run computes with: opening it, its memory, and how fast it is. */

typedef struct config config;

/* `device` as the configuration has it; auto takes a GPU where there is one and this build has
 * CUDA. number: of this rank among those of its host, which share the host's devices evenly.
 * DCP_ERR_UNSUPPORTED: what it asks for is not there, or can't do what else is asked for. */
int setup_device_open(const config *c, unsigned number, kernels **out, dcp_error *err);

/* What libdcp needs to save from the memory of k and to load into it; NULL where it is the host's.
 */
int setup_device_memory(const kernels *k, dcp_device **out, dcp_error *err);

/* Floating-point operations a second of matrix products of that type, all ranks together while all
 * of them compute: what mfu is a share of. Collective; takes some 50 ms. 0: out of memory. */
double setup_device_peak(kernels *k, kernels_type type, MPI_Comm comm);

/* What of the machine would have nothing to do. */

/* Rank 0 warns where there are fewer micro-batches than ranks: such a rank holds its part of the
 * state, and waits for the others. */
void setup_idle_warn_of_ranks(const config *c, int rank, int world);

/* Collective: tells where this host has more cores than ranks, and a step work for more. A rank
 * computes on one core, whatever OMP_NUM_THREADS says: equal bits rest on that. */
void setup_idle_tell_cores(const kernels *k, const config *c, MPI_Comm comm);
