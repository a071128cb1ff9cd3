/* The backend that a run computes with: opening it, its memory, and how fast it is. */
#pragma once

#include <mpi.h>

#include "kernels/kernels.h"
#include <dcp/device.h>

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
