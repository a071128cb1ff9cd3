/* The transport by messages of MPI. */
#pragma once

#include "fsdp/transport.h"

/* Between memory of the host. mesh: borrowed. */
fsdp_transport fsdp_transport_mpi(const fsdp_mesh *mesh);
