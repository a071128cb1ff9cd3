/* MPI's transfers proceed only inside its calls: hence poll. */
#include "fsdp/transport_mpi.h"

static MPI_Comm comm_of(const fsdp_transport *t, fsdp_group group) {
    return fsdp_mesh_comm(t->state, group);
}

static void mpi_gather(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                       fsdp_stretches to, fsdp_transfer *out) {
    out->is_on = 1;
    const MPI_Datatype element = type == KERNELS_BF16 ? MPI_UINT16_T : MPI_FLOAT;
    const size_t size = type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
    const MPI_Comm comm = comm_of(t, group);
    int rank;
    MPI_Comm_rank(comm, &rank);
    const char *place = (const char *)to.at + (size_t)to.starts[rank] * size;
    const void *from = own == place ? MPI_IN_PLACE : own;
    MPI_Iallgatherv(from, to.counts[rank], element, to.at, to.counts, to.starts, element, comm,
                    &out->request);
}

static void mpi_exchange(fsdp_transport *t, fsdp_group group, fsdp_stretches from,
                         fsdp_stretches to, fsdp_transfer *out) {
    out->is_on = 1;
    MPI_Ialltoallv(from.at, from.counts, from.starts, MPI_FLOAT, to.at, to.counts, to.starts,
                   MPI_FLOAT, comm_of(t, group), &out->request);
}

static void mpi_reduce_scatter(fsdp_transport *t, fsdp_group group, const float *from, float *to,
                               const int *counts, fsdp_transfer *out) {
    out->is_on = 1;
    MPI_Ireduce_scatter(from, to, counts, MPI_FLOAT, MPI_SUM, comm_of(t, group), &out->request);
}

static void mpi_all_reduce(fsdp_transport *t, fsdp_group group, float *sums, int n,
                           fsdp_transfer *out) {
    out->is_on = 1;
    MPI_Iallreduce(MPI_IN_PLACE, sums, n, MPI_FLOAT, MPI_SUM, comm_of(t, group), &out->request);
}

static void mpi_poll(fsdp_transport *t, fsdp_transfer *transfer) {
    int done;
    (void)t;
    if (transfer->is_on) MPI_Test(&transfer->request, &done, MPI_STATUS_IGNORE);
}

static void mpi_finish(fsdp_transport *t, fsdp_transfer *transfer) {
    (void)t;
    if (transfer->is_on) MPI_Wait(&transfer->request, MPI_STATUS_IGNORE);
    transfer->is_on = 0;
}

static void mpi_destroy(fsdp_transport *t) { (void)t; }

fsdp_transport fsdp_transport_mpi(const fsdp_mesh *mesh) {
    return (fsdp_transport){.name = "mpi",
                            .state = (void *)mesh,
                            .gather = mpi_gather,
                            .exchange = mpi_exchange,
                            .reduce_scatter = mpi_reduce_scatter,
                            .all_reduce = mpi_all_reduce,
                            .poll = mpi_poll,
                            .finish = mpi_finish,
                            .destroy = mpi_destroy};
}
