/* Which transport a run takes: the only place outside their files that knows which were built. */
#include <stdlib.h>

#include "transport.h"

/* Whether ranks of one host share a device. */
static int is_shared(const fsdp_mesh *mesh, int place, int *shared) {
    MPI_Comm host;
    int rank, ranks;
    MPI_Comm_split_type(mesh->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &ranks);
    int *places = malloc((size_t)ranks * sizeof *places);
    int failed = !places;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, mesh->world);
    if (!failed) MPI_Allgather(&place, 1, MPI_INT, places, 1, MPI_INT, host);
    *shared = 0;
    for (int i = 0; i < ranks && !failed; i++) *shared |= i != rank && places[i] == place;
    MPI_Allreduce(MPI_IN_PLACE, shared, 1, MPI_INT, MPI_MAX, mesh->world);
    free(places);
    MPI_Comm_free(&host);
    return failed;
}

int fsdp_transport_choose(const fsdp_mesh *mesh, kernels *k, fsdp_transport *out) {
    void *stream;
    const int place = k->place(k, &stream);
    int ranks, shared;
    MPI_Comm_size(mesh->world, &ranks);
    if (place == KERNELS_HOST) {
        *out = fsdp_transport_mpi(mesh);
        return 0;
    }
    if (is_shared(mesh, place, &shared)) return 1;
#ifdef TRAINER_NCCL
    if (ranks > 1 && fsdp_transport_nccl(mesh, k, shared, out) == 0) return 0;
    *out = (fsdp_transport){0}; /* it was made and is gone */
#endif
    return fsdp_transport_host(mesh, k, out);
}
