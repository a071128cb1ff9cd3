/* Who shares memory with whom: communicators over MPI join their hosts, and leave them. */
#pragma once

#include "comm/comm.h"

/* Collective, over messages: the ranks of each host share memory from then on, as comm->local says,
 * unless one of them can't, or some rank must not. The communicator's collectives go through that
 * memory. Where all are on one host, comm->shared is set. */
int comm_host_join(dcp_comm *comm, dcp_error *err);

/* The rank goes back to messages. */
void comm_host_leave(dcp_comm *comm);

/* Collective: the ranks' places have changed, and with that maybe who shares memory. */
int comm_host_follow(dcp_comm *comm, dcp_error *err);
