/* Collectives of ranks on several hosts: first in the memory of each host, then by messages between
 * the hosts' first ranks, and back. Fewer messages go between hosts, and fewer rounds. */
#pragma once

#include "comm/host.h"

/* Of a comm_mpi whose ranks share memory in groups. All-to-alls, and gathers of more than 4 KiB a
 * rank, are messages between all. */
extern const dcp_comm_ops comm_levels_ops;

/* Makes the messages between the first ranks of the groups ready. -1: memory is short. */
int comm_levels_make(comm_mpi *ctx, const comm_groups *groups);
