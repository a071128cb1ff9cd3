/* A communicator over MPI. */
#ifndef DCP_MPI_H
#define DCP_MPI_H

#include <mpi.h>

#include "dcp/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Duplicates `comm` (collective over it), so that libdcp's messages never meet the caller's. The
 * duplicate returns errors instead of aborting. Destroy it before MPI_Finalize. */
DCP_API int dcp_comm_from_mpi(MPI_Comm comm, dcp_comm **out, dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
