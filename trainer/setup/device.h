/* Opens the backend that a run computes with, and warns about parts of the machine that would be
 * idle. */
#pragma once

#include <mpi.h>

#include <dcp/device.h>

#include "config/config.h"
#include "kernels/kernels.h"

typedef struct config config;

/* Opens the configuration's `device`; auto selects a GPU if one exists and this build has CUDA.
 * number: this rank's index among the ranks of its host, which share the host's devices evenly.
 * DCP_ERR_UNSUPPORTED: the device does not exist, or does not support another setting of the
 * configuration. */
int setup_device_open(const config *c, unsigned number, kernels **out, dcp_error *err);

/* Makes the dcp_device through which libdcp saves from the memory of k and loads into it. *out is
 * NULL if the memory of k is the host's memory. */
int setup_device_memory(const kernels *k, dcp_device **out, dcp_error *err);

/* Measures the floating-point operations per second of matrix products of `type`, added up over all
 * ranks while all of them compute. mfu is relative to this peak. Collective; lasts at least 100 ms.
 * Returns 0 if a rank is out of memory. */
double setup_device_peak(kernels *k, kernels_type type, MPI_Comm comm);

/* Rank 0 warns if there are fewer micro-batches than ranks: a rank without a micro-batch holds its
 * part of the state and waits for the others. */
void setup_idle_warn_of_ranks(const config *c, int rank, int world);

/* Collective. Rank 0 prints a note if its host has more cores than ranks, and a step has enough
 * micro-batches for more ranks. A rank computes on one core, regardless of OMP_NUM_THREADS, because
 * a different number of threads could change the bits. */
void setup_idle_report_cores(const kernels *k, const config *c, MPI_Comm comm);
