/* A rank that is late: within the limit the others wait for it; after it they return DCP_ERR_COMM
 * with its number, whichever rank they wait for themselves, and so does the late one when it
 * arrives. Over shared memory, over messages, and over both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "dcp/mpi.h"
#include "support/check.h"

static int rank, ranks;

/* By messages ("0"), through shared memory ("1"), or by both, with the odd ranks on a second host
 * ("2"). */
static dcp_comm *make_comm(const char *shared) {
    dcp_comm *comm;
    const int hosts = *shared == '2' ? 2 : 1;
    setenv("DCP_SHARED_MEMORY", shared, 1);
    setenv("DCP_HOST", hosts == 2 && rank % 2 ? "odd" : "even", 1);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    CHECK((comm->shared != NULL) == (*shared == '1'));
    CHECK(comm->local.groups->n == (*shared == '0' ? ranks : hosts));
    return comm;
}

static void come_late(double seconds) {
    for (double end = MPI_Wtime() + seconds; MPI_Wtime() < end;) {
        const struct timespec nap = {.tv_nsec = 1000000};
        nanosleep(&nap, NULL);
    }
}

/* 0.3 s are longer than any interval between two checks. */
static void within_the_limit(const char *shared) {
    dcp_comm *comm = make_comm(shared);
    uint64_t sum = 1;
    CHECK(dcp_comm_set_limit(comm, 500, NULL) == DCP_OK);
    if (rank == ranks - 1) come_late(0.3);
    CHECK(comm_allreduce(comm, &sum, 1, DCP_REDUCE_SUM, NULL) == DCP_OK);
    CHECK(sum == (uint64_t)ranks);
    dcp_comm_destroy(comm);
}

/* Each rank arrives within the limit after the one before it, the last one beyond the first
 * limit. */
static void one_after_another(void) {
    dcp_comm *comm = make_comm("0");
    uint64_t *all = calloc((size_t)ranks, sizeof *all), own = (uint64_t)rank + 1;
    CHECK(dcp_comm_set_limit(comm, 2, NULL) == DCP_OK);
    come_late(1.7 * rank);
    CHECK(comm_gather(comm, &own, sizeof own, all, 0, NULL) == DCP_OK);
    for (int r = 0; r < ranks && rank == 0; r++) CHECK(all[r] == (uint64_t)r + 1);
    free(all);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_comm_destroy(comm);
}

/* The late rank arrives after all others have stopped waiting for it. */
static void after_the_limit(const char *shared) {
    dcp_comm *comm = make_comm(shared);
    MPI_Comm others;
    dcp_error err = {0};
    char byte = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank == ranks - 1, rank, &others);
    CHECK(dcp_comm_set_limit(comm, rank ? 0 : 0.5, NULL) == DCP_OK); /* the largest counts */
    if (rank == ranks - 1) {
        MPI_Recv(&byte, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        come_late(0.3); /* the others' reports are on their way */
    }
    int status = comm_barrier(comm, &err);
    if (rank < ranks - 1) {
        CHECK(status == DCP_ERR_COMM && err.rank == ranks - 1);
        CHECK(strstr(err.message, "did not come within 0.5 s"));
        MPI_Barrier(others);
    }
    if (rank == 0) MPI_Send(&byte, 1, MPI_BYTE, ranks - 1, 0, MPI_COMM_WORLD);
    CHECK(status == DCP_ERR_COMM && err.rank == ranks - 1);
    CHECK(comm_barrier(comm, &err) == DCP_ERR_COMM && err.rank == ranks - 1);
    dcp_comm_destroy(comm);
    MPI_Comm_free(&others);
}

static void limits_are_checked(void) {
    dcp_comm *comm = make_comm("1");
    CHECK(dcp_comm_set_limit(comm, rank ? 1 : -1, NULL) == DCP_ERR_ARG);
    CHECK(dcp_comm_set_limit(NULL, 1, NULL) == DCP_ERR_ARG);
    CHECK(comm->watch->limit_ns == 0);
    dcp_comm_destroy(comm);
    setenv("DCP_COMM_LIMIT", rank ? "2.5" : "", 1);
    comm = make_comm("1");
    CHECK(comm->watch->limit_ns == 2500000000);
    dcp_comm_destroy(comm);
    unsetenv("DCP_COMM_LIMIT");
}

/* All ranks report what the last one has in its environment. */
static void limits_of_the_environment_are_checked(void) {
    const char *wrong[] = {"x", "3 s", " ", "-1", "inf", "nan", "1e9"};
    char text[80];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dcp_comm *comm;
        dcp_error err = {0};
        setenv("DCP_COMM_LIMIT", rank == ranks - 1 ? wrong[i] : "5", 1);
        CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, &err) == DCP_ERR_ARG);
        snprintf(text, sizeof text, "rank %d: DCP_COMM_LIMIT in the environment is \"%s\"",
                 ranks - 1, wrong[i]);
        CHECK(strstr(err.message, text) && err.rank == ranks - 1);
    }
    unsetenv("DCP_COMM_LIMIT");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    limits_are_checked();
    limits_of_the_environment_are_checked();
    within_the_limit("1");
    within_the_limit("0");
    within_the_limit("2");
    one_after_another();
    after_the_limit("1");
    after_the_limit("0");
    after_the_limit("2");
    MPI_Finalize();
    return 0;
}
