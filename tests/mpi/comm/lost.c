/* A rank that has ended while others meet in their sharing groups, or exchange messages with their
 * peers: all ranks learn of it, including those that neither share memory nor communicate with it.
 * The last rank only appears to the others to have ended, and stays away. Two hosts, even and odd
 * ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/messages.h"
#include "comm/sharing.h"
#include "dcp/mpi.h"
#include "support/check.h"

static int rank, ranks;

static dcp_comm *make_comm(void) {
    dcp_comm *comm;
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    CHECK(comm->local.groups->n == 2);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank % 2 == (ranks - 1) % 2) /* the ranks that share a machine with it */
        comm->watch->processes[ranks - 1].start++;
    else
        comm->watch->processes[ranks - 1].name_space = 0;
    return comm;
}

static void check_failure(int status, const dcp_error *err) {
    if (status != DCP_ERR_COMM || err->rank != ranks - 1)
        fprintf(stderr, "rank %d: status %d, rank %d: %s\n", rank, status, err->rank, err->message);
    CHECK(status == DCP_ERR_COMM && err->rank == ranks - 1);
}

/* The last rank's group meets, while the other one exchanges messages with it; then all meet. */
static int meet_group(dcp_comm *comm, dcp_error *err) {
    int status = comm_local_barrier(comm, err);
    return status ? status : comm_barrier(comm, err);
}

static int take_maximum(dcp_comm *comm, dcp_error *err) {
    uint64_t most = (uint64_t)rank;
    int status = comm_local_max(comm, &most, 1, err);
    return status ? status : comm_barrier(comm, err);
}

static int share_areas_with(dcp_comm *comm, dcp_error *err) {
    const size_t bytes = 100000;
    const comm_areas *areas;
    int status = comm_local_areas(comm, 1, &bytes, &areas, err);
    return status ? status : comm_barrier(comm, err);
}

/* Each rank sends to the next one, and receives from the previous one. */
static int send_around(dcp_comm *comm, dcp_error *err) {
    unsigned char *data = calloc(2, 1 << 20);
    dcp_comm_message out = {data, 1 << 20, (rank + 1) % ranks};
    dcp_comm_message in = {data + (1 << 20), 1 << 20, (rank + ranks - 1) % ranks};
    int status = comm_exchange_run(comm, &out, 1, &in, 1, err);
    if (!status) status = comm_barrier(comm, err);
    free(data);
    return status;
}

static int reduce_all(dcp_comm *comm, dcp_error *err) {
    uint64_t sum = 1;
    return comm_allreduce(comm, &sum, 1, DCP_REDUCE_SUM, err);
}

static void lose_in(int (*run)(dcp_comm *, dcp_error *)) {
    dcp_comm *comm = make_comm();
    dcp_error err = {0};
    if (rank < ranks - 1) check_failure(run(comm, &err), &err);
    if (rank < ranks - 1) check_failure(comm_local_barrier(comm, &err), &err);
    if (rank < ranks - 1) check_failure(comm_exchange_run(comm, NULL, 0, NULL, 0, &err), &err);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_comm_destroy(comm);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    setenv("DCP_HOST", rank % 2 ? "odd" : "even", 1);
    lose_in(meet_group);
    lose_in(take_maximum);
    lose_in(share_areas_with);
    lose_in(send_around);
    lose_in(reduce_all);
    MPI_Finalize();
    return 0;
}
