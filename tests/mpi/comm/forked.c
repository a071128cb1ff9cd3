/* A child of fork is not a rank: it frees its copy of a communicator, and of a store on it, without
 * a call that the ranks would have to make together. They continue. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "dcp/mpi.h"
#include "support/check.h"

static pid_t ranks_process;

/* Replaces MPI's function. */
int MPI_Comm_free(MPI_Comm *comm) {
    if (getpid() != ranks_process) _exit(1);
    return PMPI_Comm_free(comm);
}

static int destroy_in_child(dcp_comm *comm, dcp_comm *duplicate) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        dcp_comm_destroy(duplicate);
        dcp_comm_destroy(comm);
        _exit(0);
    }
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    ranks_process = getpid();
    for (int shares = 0; shares < 2; shares++) {
        dcp_comm *comm, *duplicate = NULL;
        uint64_t sums[2] = {1, 1};
        setenv("DCP_SHARED_MEMORY", shares ? "1" : "0", 1);
        CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
        CHECK(comm_duplicate(comm, &duplicate, NULL) == DCP_OK);
        CHECK(destroy_in_child(comm, duplicate) == 0);
        CHECK(comm_allreduce(comm, &sums[0], 1, DCP_REDUCE_SUM, NULL) == DCP_OK);
        if (duplicate)
            CHECK(comm_allreduce(duplicate, &sums[1], 1, DCP_REDUCE_SUM, NULL) == DCP_OK);
        CHECK(sums[0] == (uint64_t)comm->size && (!duplicate || sums[1] == sums[0]));
        dcp_comm_destroy(duplicate);
        dcp_comm_destroy(comm);
    }
    MPI_Finalize();
    return 0;
}
