/* A communicator over MPI. */
#ifndef DCP_MPI_H
#define DCP_MPI_H

#include <mpi.h>
#include <stddef.h>

#include "dcp/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a communicator over a duplicate of `comm`, so that libdcp's messages never match the
 * caller's. Collective over `comm`. The duplicate returns errors instead of aborting. Destroy the
 * communicator before MPI_Finalize.
 * DCP_ERR_ARG: DCP_COMM_LIMIT is not a number of seconds on some rank, which the error names.
 *
 * If a rank ends by a signal or without closing its communicator, the current and all later
 * collective calls of the other ranks return DCP_ERR_COMM, and the error contains the number of
 * that rank (see dcp_comm_set_limit for the time that this takes). For this, mpirun must leave the
 * other ranks running; it ends them unless it was started with --enable-recovery. The other ranks
 * can close everything, and should then end without MPI_Finalize, which would wait for the lost
 * rank. The program's own MPI calls have no such protection. If a rank ends in dcp_comm_from_mpi
 * before it has identified itself to all others, only DCP_COMM_LIMIT in the environment ends the
 * wait for it. MPI itself may end its processes when it loses a connection (Open MPI may do so
 * between hosts); then no library can return an error.
 *
 * Ranks on one host (dcp_comm_set_host) communicate through shared memory. Each communicator uses
 * half a MiB per rank and, while data is transferred, up to 32 MiB, or up to 80 MiB on each host if
 * the ranks are on several hosts. The memory is allocated as it is used, or all in advance if
 * vm.overcommit_memory is 2. If it cannot be allocated, or if any rank has DCP_SHARED_MEMORY=0 in
 * its environment, the ranks use MPI's messages. */
DCP_API int dcp_comm_from_mpi(MPI_Comm comm, dcp_comm **out, dcp_error *err);

/* Like dcp_comm_from_mpi, for a Fortran communicator: the integer, or the member MPI_VAL of
 * type(MPI_Comm). DCP_ERR_ARG: not a communicator. */
DCP_API int dcp_comm_from_fortran(MPI_Fint comm, dcp_comm **out, dcp_error *err);

/* Returns `bytes` of zeroed, page-aligned memory that all ranks of `comm` share. Collective. Free
 * it with dcp_host_memory_free. The memory has no name in any folder, so a killed process leaves
 * nothing of it behind, and it uses no space in /dev/shm. Returns NULL on all ranks if they cannot
 * share memory (they are on several hosts, are not permitted to open each other's files, or MPI is
 * not running), or if `comm` is MPI_COMM_NULL. */
DCP_API void *dcp_host_memory_create(MPI_Comm comm, size_t bytes);
/* Unmaps this rank's view of the memory. NULL is ignored. */
DCP_API void dcp_host_memory_free(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
