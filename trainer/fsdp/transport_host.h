/* The transport by MPI of a device's memory. */
#pragma once

#include "fsdp/transport.h"

/* By copies on the host, page-locked, of the memory of k. mesh: borrowed. Nonzero: out of memory.
 */
int fsdp_transport_host(const fsdp_mesh *mesh, kernels *k, fsdp_transport *out);
