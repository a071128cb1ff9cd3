/* Chooses a run's transport. Besides the files of the transports, only this file depends on which
 * transports were built. */
#include <stdbool.h>

#include "fsdp/transport.h"

#ifdef TRAINER_NCCL
/* Returns true if any device is shared by several ranks. */
static bool is_shared(const fsdp_mesh *mesh, const kernels *k) {
    MPI_Comm sharers;
    int n;
    fsdp_mesh_sharers(mesh->world, k->device(k), &sharers);
    MPI_Comm_size(sharers, &n);
    MPI_Comm_free(&sharers);
    MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_MAX, mesh->world);
    return n > 1;
}

static int try_nccl(const fsdp_mesh *mesh, kernels *k, int sums, fsdp_transport *out) {
    const int failed = fsdp_transport_nccl(mesh, k, is_shared(mesh, k), sums, out);
    if (failed) *out = (fsdp_transport){0}; /* the transport is already destroyed */
    return failed;
}
#else
static int try_nccl(const fsdp_mesh *mesh, kernels *k, int sums, fsdp_transport *out) {
    (void)mesh, (void)k, (void)sums, (void)out;
    return 1;
}
#endif

int fsdp_transport_choose(const fsdp_mesh *mesh, kernels *k, int sums, fsdp_transport *out) {
    if (kernels_on_host(k)) {
        *out = fsdp_transport_mpi(mesh);
        return 0;
    }
    return try_nccl(mesh, k, sums, out) ? fsdp_transport_host(mesh, k, out) : 0;
}
