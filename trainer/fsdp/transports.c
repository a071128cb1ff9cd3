/* Which transport a run takes: the only place outside their files that knows which were built. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport.h"

/* Whether ranks of one host share a device: each may see it by a number of its own. */
static int is_shared(const fsdp_mesh *mesh, const char *device, int *shared) {
    enum { LENGTH = 32 };
    MPI_Comm host;
    int rank, ranks;
    MPI_Comm_split_type(mesh->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &ranks);
    char own[LENGTH] = "", (*all)[LENGTH] = malloc((size_t)ranks * sizeof *all);
    int failed = !all;
    snprintf(own, sizeof own, "%s", device);
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, mesh->world);
    if (!failed) MPI_Allgather(own, LENGTH, MPI_CHAR, all, LENGTH, MPI_CHAR, host);
    *shared = 0;
    for (int i = 0; i < ranks && !failed; i++) *shared |= i != rank && strcmp(all[i], own) == 0;
    MPI_Allreduce(MPI_IN_PLACE, shared, 1, MPI_INT, MPI_MAX, mesh->world);
    free(all);
    MPI_Comm_free(&host);
    return failed;
}

int fsdp_transport_choose(const fsdp_mesh *mesh, kernels *k, fsdp_transport *out) {
    int shared;
    if (kernels_on_host(k)) {
        *out = fsdp_transport_mpi(mesh);
        return 0;
    }
    if (is_shared(mesh, k->device(k), &shared)) return 1;
#ifdef TRAINER_NCCL
    if (fsdp_transport_nccl(mesh, k, shared, out) == 0) return 0;
    *out = (fsdp_transport){0}; /* it was made and is gone */
#endif
    return fsdp_transport_host(mesh, k, out);
}
