/* The transport by messages of MPI. */
#ifndef TRAINER_FSDP_TRANSPORT_MPI_H
#define TRAINER_FSDP_TRANSPORT_MPI_H

#include "fsdp/transport.h"

/* Between memory of the host. mesh: borrowed. */
fsdp_transport fsdp_transport_mpi(const fsdp_mesh *mesh);

#endif
