/* Ranks learn that one has ended from any rank that can see it, whichever rank each of them waits
 * for. The last rank appears to have ended to the rank that can look it up, and stays away. */
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

#include "comm/batch.h"
#include "comm/host.h"
#include "comm/sharing.h"
#include "dcp/mpi.h"
#include "support/check.h"

static int rank, ranks;
static int notes, most_notes = 100; /* of failures, which this rank has sent, and may send */
static const int failure_tag = 2;

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    *request = MPI_REQUEST_NULL;
    if (tag == failure_tag && notes++ >= most_notes) return MPI_SUCCESS;
    return PMPI_Isend(buf, count, type, to, tag, comm, request);
}

/* shared: "0" or "1". Only rank `looks` can look up the last one, and finds that it has ended. */
static dcp_comm *make_comm(const char *shared, int looks) {
    dcp_comm *comm;
    setenv("DCP_SHARED_MEMORY", shared, 1);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    CHECK((comm->shared != NULL) == (*shared == '1'));
    MPI_Barrier(MPI_COMM_WORLD); /* no rank learns of it before all have made theirs */
    comm_process *last = &comm->watch->processes[ranks - 1];
    if (rank == looks)
        last->start++; /* its pid belongs to another process now */
    else
        last->name_space = 0;
    return comm;
}

static void check_failure(int status, const dcp_error *err) {
    CHECK(status == DCP_ERR_COMM && err->rank == ranks - 1);
    CHECK(err->n_ranks == 1 && err->ranks[0] == ranks - 1);
}

/* In a broadcast from the last rank, the rank before it receives what another one has received. It
 * finds that the last one has ended, and appears to end itself after it has told one other rank. */
static void over_messages(void) {
    dcp_comm *comm = make_comm("0", ranks - 2);
    dcp_error err = {0};
    uint64_t value = 0;
    if (rank == ranks - 2) most_notes = 1;
    if (rank < ranks - 1)
        check_failure(comm_broadcast(comm, &value, sizeof value, ranks - 1, &err), &err);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_comm_destroy(comm);
}

static void take_signal(int number) { (void)number; }

/* Delivers a signal every so many microseconds, as a profiler's timer does. 0: no more. */
static void be_woken(int us) {
    const struct sigaction action = {.sa_handler = take_signal};
    const struct itimerval each = {{.tv_usec = us}, {.tv_usec = us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &each, NULL);
}

/* Rank 0 first waits for rank 1, which arrives after all others have returned. Ranks try to sleep
 * for longer than signals let them. */
static void over_memory(void) {
    dcp_comm *comm = make_comm("1", 0);
    dcp_error err = {0};
    ((comm_mpi *)comm->ctx)->pairs.yields = 1;
    be_woken(3000);
    if (rank != 1 && rank < ranks - 1) check_failure(comm_barrier(comm, &err), &err);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) check_failure(comm_barrier(comm, &err), &err);
    be_woken(0);
    dcp_comm_destroy(comm);
}

/* Rank 1 finds it while it joins the others, which already use what they share. */
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
