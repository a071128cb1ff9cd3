/* The backend that a run computes with, and its memory. */
#ifndef TRAINER_SETUP_DEVICE_H
#define TRAINER_SETUP_DEVICE_H

#include "config/config.h"
#include "kernels/kernels.h"
#include <dcp/device.h>

/* `device` as the configuration has it; auto takes a GPU where there is one and this build has
 * CUDA. number: of this rank among those of its host, which share the host's devices evenly.
 * DCP_ERR_UNSUPPORTED: what it asks for is not there, or can't do what else is asked for. */
int device_open(const config *c, unsigned number, kernels **out, dcp_error *err);

/* What libdcp needs to save from the memory of k and to load into it; NULL where it is the host's.
 */
int device_memory(const kernels *k, dcp_device **out, dcp_error *err);

#endif
