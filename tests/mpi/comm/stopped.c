/* A stopped rank has not ended: the others wait for it, however long that lasts. A child lets it
 * continue after the others have checked it a few times while it was stopped. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "dcp/mpi.h"
#include "support/check.h"

static void be_stopped(void) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        usleep(500000);
        kill(parent, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int shares = 0; shares < 2; shares++) {
        dcp_comm *comm;
        uint64_t sum = 1;
        setenv("DCP_SHARED_MEMORY", shares ? "1" : "0", 1);
        CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
        if (rank == ranks - 1) be_stopped();
        CHECK(comm_allreduce(comm, &sum, 1, DCP_REDUCE_SUM, NULL) == DCP_OK);
        CHECK(sum == (uint64_t)ranks);
        dcp_comm_destroy(comm);
    }
    MPI_Finalize();
    return 0;
}
