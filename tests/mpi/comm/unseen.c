/* Ranks learn that one has ended from whoever can see it, for whomever each of them waits itself.
 * The last rank has ended as far as the rank that may look it up can tell, and stays away. */
#include <stdlib.h>

#include "comm/batch.h"
#include "comm/host.h"
#include "dcp/mpi.h"
#include "support/check.h"

static int rank, ranks;

/* `shared`: "0" or "1". Only rank `looks` can look at the last one, and finds it gone. */
static dcp_comm *make_comm(const char *shared, int looks) {
    dcp_comm *comm;
    setenv("DCP_SHARED_MEMORY", shared, 1);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    CHECK((comm->shared != NULL) == (*shared == '1'));
    comm_process *last = &comm->watch->processes[ranks - 1];
    if (rank == looks)
        last->start++; /* its pid is another process's now */
    else
        last->name_space = 0;
    return comm;
}

static void check_failure(int status, const dcp_error *err) {
    CHECK(status == DCP_ERR_COMM && err->rank == ranks - 1);
}

/* Of a broadcast from the last rank, the one before it gets what another has got. */
static void over_messages(void) {
    dcp_comm *comm = make_comm("0", ranks - 2);
    dcp_error err = {0};
    uint64_t value = 0;
    if (rank < ranks - 1)
        check_failure(comm_broadcast(comm, &value, sizeof value, ranks - 1, &err), &err);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_comm_destroy(comm);
}

/* Rank 0 waits for rank 1 first, which comes when all others have returned. */
static void over_memory(void) {
    dcp_comm *comm = make_comm("1", 0);
    dcp_error err = {0};
    if (rank != 1 && rank < ranks - 1) check_failure(comm_barrier(comm, &err), &err);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) check_failure(comm_barrier(comm, &err), &err);
    dcp_comm_destroy(comm);
}

/* Rank 1 finds it while it joins the others, which have gone on to what they share. */
static void while_joining(void) {
    dcp_comm *comm = make_comm("1", -1);
    dcp_error err = {0};
    if (rank == 1) {
        comm_host_leave(comm);
        comm_batch_break(&((comm_mpi *)comm->ctx)->pairs, COMM_HAS_ENDED, 0, ranks - 1);
    }
    if (rank < ranks - 1) check_failure(comm_barrier(comm, &err), &err);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_comm_destroy(comm);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    over_messages();
    over_memory();
    while_joining();
    MPI_Finalize();
    return 0;
}
