/* A communicator over MPI. */
#ifndef DCP_MPI_H
#define DCP_MPI_H

#include <mpi.h>

#include "dcp/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Duplicates `comm` (collective over it), so that libdcp's messages never meet the caller's. The
 * duplicate returns errors instead of aborting. Destroy it before MPI_Finalize.
 *
 * Ranks that are all on one node meet in memory that they share (2.6 MiB a rank, less where there
 * are many); DCP_SHARED_MEMORY=0 in the environment keeps them to MPI's messages. */
DCP_API int dcp_comm_from_mpi(MPI_Comm comm, dcp_comm **out, dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
