/* Sharing groups: forming them, and their operations. */
#pragma once

#include "comm/comm.h"

/* Operations of a sharing group (comm/comm.h). Only the group's ranks take part. Once the
 * communicator is broken, the operations fail with DCP_ERR_COMM, even if they are already waiting,
 * and even if the lost rank belongs to another group. */

/* Collective in the group. */
int comm_local_barrier(dcp_comm *comm, dcp_error *err);
/* Collective in the group: each of values[n] becomes the largest of the group's values. Is a
 * barrier as well. */
int comm_local_max(dcp_comm *comm, uint64_t *values, size_t n, dcp_error *err);
/* Collective in the group: each of values[n] becomes the sum of the group's values. Is a barrier as
 * well. */
int comm_local_sum(dcp_comm *comm, uint64_t *values, size_t n, dcp_error *err);

/* Collective in the group: provides n areas; area i has at least bytes[i] bytes. All ranks of the
 * group pass the same sizes, and no longer use the areas of an earlier call. The areas belong to
 * the communicator, which retains them: a call that needs no more memory than earlier ones costs
 * nothing. A page occupies memory once it is touched. A failure is the same on all ranks of the
 * group; other groups don't learn of it, so pass it to comm_agree. */
int comm_local_areas(dcp_comm *comm, size_t n, const size_t *bytes, const comm_areas **out,
                     dcp_error *err);

/* Only for communicators over MPI. */

/* Collective, over messages: makes the ranks of each host share memory (comm->local). Leaves out a
 * host if one of its ranks can't share memory. Does nothing if any rank of the communicator must
 * not share memory (DCP_SHARED_MEMORY=0). The communicator's collectives then use the shared
 * memory. If all ranks are on one host, sets comm->shared. */
int comm_host_join(dcp_comm *comm, dcp_error *err);

/* Makes this rank use messages again. */
void comm_host_leave(dcp_comm *comm);

/* Collective, after the ranks' locations have changed: shares memory according to the new
 * locations. */
int comm_host_update(dcp_comm *comm, dcp_error *err);
