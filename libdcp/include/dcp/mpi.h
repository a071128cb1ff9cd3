/* A communicator over MPI. */
#ifndef DCP_MPI_H
#define DCP_MPI_H

#include <mpi.h>
#include <stddef.h>

#include "dcp/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Duplicates `comm` (collective over it), so that libdcp's messages never meet the caller's. The
 * duplicate returns errors instead of aborting. Destroy it before MPI_Finalize.
 *
 * A rank that ends, by a signal or without closing, makes DCP_ERR_COMM of what the others do then
 * or later, and its number is in the error (dcp_comm_set_limit says when). For that they must be
 * let live: mpirun ends them unless it has --enable-recovery. They can close everything, and should
 * then end without MPI_Finalize, which would wait for the lost rank. Not covered are what the
 * program itself asks MPI to do, and a rank that ends before it has told all others in
 * dcp_comm_from_mpi who it is: only DCP_COMM_LIMIT in the environment ends the wait for it. Where
 * MPI ends its processes itself when it loses a connection, as Open MPI may between hosts, no
 * library can return. DCP_ERR_ARG: DCP_COMM_LIMIT is no number of seconds on some rank, which is
 * named.
 *
 * Ranks on one host (dcp_comm_set_host) meet in memory that they share: for each communicator half
 * a MiB a rank, and while bytes move up to 32 MiB, or where ranks are on several hosts up to 80 MiB
 * on each, taken as it is used, or at once where vm.overcommit_memory is 2. Where it cannot be had,
 * and with DCP_SHARED_MEMORY=0 in the environment of any rank, they keep to MPI's messages. */
DCP_API int dcp_comm_from_mpi(MPI_Comm comm, dcp_comm **out, dcp_error *err);

/* The same of a communicator as Fortran has it: the integer, or of type(MPI_Comm) the member
 * MPI_VAL. DCP_ERR_ARG: it is none. */
DCP_API int dcp_comm_from_fortran(MPI_Fint comm, dcp_comm **out, dcp_error *err);

/* Collective: `bytes` of memory, zeroed, page-aligned, which all ranks of `comm` see. It has no
 * name in any folder, so that no kill leaves anything of it behind, and takes no room of /dev/shm.
 * NULL, on all ranks, where it cannot be had: they are on several hosts, or may not open each
 * other's files; MPI does not run, or `comm` is MPI_COMM_NULL. */
DCP_API void *dcp_host_memory_create(MPI_Comm comm, size_t bytes);
/* Of this rank's view of it. NULL is ignored. */
DCP_API void dcp_host_memory_free(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
