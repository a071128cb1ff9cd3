/* The choice of a transport. */
#pragma once

#include "fsdp/transport.h"

/* The transport that suits the memory of k: on GPUs NCCL where it will do. sums: reduce_scatter and
 * all_reduce are wanted, too. Collective; nonzero: out of memory. */
int fsdp_transport_choose(const fsdp_mesh *mesh, kernels *k, int sums, fsdp_transport *out);
