/* Memory that ranks of one host share. It has no name in any folder, so that no kill leaves
 * anything of it behind, and takes no room of /dev/shm. */
#ifndef TRAINER_FSDP_HOST_MEMORY_H
#define TRAINER_FSDP_HOST_MEMORY_H

#include <mpi.h>
#include <stddef.h>

/* Collective: `bytes` of memory, zeroed, which all ranks of the group see. NULL, on all of them,
 * where that cannot be had: they are of several hosts, or may not open each other's files. */
void *host_memory_create(MPI_Comm group, size_t bytes);
/* NULL is ignored. */
void host_memory_free(void *memory, size_t bytes);

#endif
