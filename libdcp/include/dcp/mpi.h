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
 * Ranks that are all on one host meet in memory that they share: for each communicator half a MiB
 * a rank and 16 MiB in all, taken as it is used, or at once where vm.overcommit_memory is 2. Where
 * it cannot be had, and with DCP_SHARED_MEMORY=0 in the environment of any of them, they keep to
 * MPI's messages. */
DCP_API int dcp_comm_from_mpi(MPI_Comm comm, dcp_comm **out, dcp_error *err);

/* Collective: `bytes` of memory, zeroed, page-aligned, which all ranks of `comm` see. It has no
 * name in any folder, so that no kill leaves anything of it behind, and takes no room of /dev/shm.
 * NULL, on all ranks, where it cannot be had: they are on several hosts, or may not open each
 * other's files. */
DCP_API void *dcp_host_memory_create(MPI_Comm comm, size_t bytes);
/* Of this rank's view of it. NULL is ignored. */
DCP_API void dcp_host_memory_free(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
