/* Agreement of all ranks on one status. Collective rule: a local failure never returns between two
 * collectives; it is passed to agree, and the ranks go on only where that returns DCP_OK. */
#pragma once

#include <mpi.h>

#include <dcp/error.h>

/* Collective: each rank passes its own status and the error that it filled where it failed. All
 * return the status and the message of the lowest rank that failed, which the message names unless
 * all failed. */
int ranks_agree(MPI_Comm comm, int status, dcp_error *err);
