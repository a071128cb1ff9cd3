/* Sharing groups: how ranks find those that they share memory with, and what they do together. */
#pragma once

#include "comm/comm.h"

/* What the ranks of a sharing group (comm/comm.h) do together, whatever others do. It needs the
 * group's ranks alone, and fails with DCP_ERR_COMM once the communicator is broken, whichever rank
 * is gone, and so while it waits. */

/* Collective in the group. */
int comm_local_barrier(dcp_comm *comm, dcp_error *err);
/* Collective in the group: values[n] become the largest of the group's. It is a barrier as well. */
int comm_local_max(dcp_comm *comm, uint64_t *values, size_t n, dcp_error *err);
/* The same, and they become the sums. */
int comm_local_sum(dcp_comm *comm, uint64_t *values, size_t n, dcp_error *err);

/* Collective in the group: n areas of so many bytes at least. All its ranks pass the same, and are
 * done with what they were given before. They belong to the communicator, which keeps them: asking
 * for no more than before costs nothing. A page takes memory once it is touched. Other groups don't
 * learn of a failure, which is the same on all ranks of this one: pass it to comm_agree. */
int comm_local_areas(dcp_comm *comm, size_t n, const size_t *bytes, const comm_areas **out,
                     dcp_error *err);

/* Who shares memory with whom: communicators over MPI join their hosts, and leave them. */

/* Collective, over messages: the ranks of each host share memory from then on, as comm->local says,
 * unless one of them can't, or some rank must not. The communicator's collectives go through that
 * memory. Where all are on one host, comm->shared is set. */
int comm_host_join(dcp_comm *comm, dcp_error *err);

/* The rank goes back to messages. */
void comm_host_leave(dcp_comm *comm);

/* Collective: the ranks' places have changed, and with that maybe who shares memory. */
int comm_host_follow(dcp_comm *comm, dcp_error *err);
