/* The transport by NCCL. Only where it was built. */
#pragma once

#include "fsdp/transport.h"

/* By NCCL between GPUs, on streams of its own. shared: ranks share a GPU, which only NCCL 2.30 and
 * later do, where NCCL_MULTI_RANK_GPU_ENABLE=1 asks for it. sums: reduce_scatter and all_reduce are
 * wanted, too. Ranks are connected before it returns. Collective; nonzero on all ranks where the
 * library of one will not do. A rank that does not answer ends the others after 300 s, and what
 * NCCL fails at ends the run within 20 s. A rank alone needs no library. */
int fsdp_transport_nccl(const fsdp_mesh *mesh, kernels *k, int shared, int sums,
                        fsdp_transport *out);
