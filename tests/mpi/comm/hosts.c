/* What a host is: a kernel and its /dev/shm, or what DCP_HOST or dcp_comm_set_host names. Ranks on
 * different hosts share no memory. With the argument "apart", each rank has a /dev/shm of its
 * own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "dcp/mpi.h"
#include "support/check.h"

static int rank, ranks;

static void check_hosts(dcp_comm *comm, int hosts) {
    int found, own, own_of_last;
    CHECK(dcp_comm_hosts(comm, &found, &own, NULL) == DCP_OK);
    CHECK(found == hosts && own < hosts && (rank > 0 || own == 0));
    own_of_last = own;
    CHECK(comm_broadcast(comm, &own_of_last, sizeof own_of_last, ranks - 1, NULL) == DCP_OK);
    CHECK(own_of_last == hosts - 1);
    CHECK((comm->shared != NULL) == (hosts == 1));
    uint64_t sum = (uint64_t)rank;
    CHECK(comm_allreduce(comm, &sum, 1, DCP_REDUCE_SUM, NULL) == DCP_OK);
    CHECK(sum == (uint64_t)(ranks * (ranks - 1) / 2));
}

/* hosts: the number that the ranks find without being told. */
static void check_found(int hosts) {
    dcp_comm *comm, *other = NULL;
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    check_hosts(comm, hosts);
    CHECK(comm_duplicate(comm, &other, NULL) == DCP_OK);
    if (other) check_hosts(other, hosts);
    dcp_comm_destroy(other);
    dcp_comm_destroy(comm);
    void *memory = dcp_host_memory_create(MPI_COMM_WORLD, 4096);
    CHECK((memory != NULL) == (hosts == 1));
    dcp_host_memory_free(memory, 4096);
}

static void name_in_environment(const char *name, int number) {
    char text[300];
    snprintf(text, sizeof text, "%s%d", name, number);
    setenv("DCP_HOST", text, 1);
}

static void check_environment(void) {
    char longest[256];
    memset(longest, 'h', 255);
    longest[255] = 0;
    name_in_environment("node", rank % 2);
    check_found(2);
    name_in_environment(longest, rank);
    check_found(ranks);
    name_in_environment("one", 1);
    check_found(1);
    setenv("DCP_HOST", "", 1);
    check_found(1);
    unsetenv("DCP_HOST");
}

/* The caller's names also apply to what is made from the communicator. */
static void check_named(void) {
    dcp_comm *comm, *other = NULL;
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    check_hosts(comm, 1);
    CHECK(dcp_comm_set_host(comm, rank ? "rack 2" : "rack 1", NULL) == DCP_OK);
    check_hosts(comm, 2);
    CHECK(comm_duplicate(comm, &other, NULL) == DCP_OK);
    if (other) check_hosts(other, 2);
    dcp_comm_destroy(other);
    CHECK(dcp_comm_set_host(comm, "rack 1", NULL) == DCP_OK);
    check_hosts(comm, 1);
    CHECK(dcp_comm_set_host(comm, rank ? NULL : "rack 1", NULL) == DCP_OK);
    check_hosts(comm, 2);
    CHECK(dcp_comm_set_host(comm, NULL, NULL) == DCP_OK);
    check_hosts(comm, 1);
    dcp_comm_destroy(comm);
}

/* All say that they are on one host; then they try to share memory, which may prove impossible. */
static void check_named_together(void) {
    dcp_comm *comm;
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    CHECK(dcp_comm_set_host(comm, "one", NULL) == DCP_OK);
    int hosts;
    CHECK(dcp_comm_hosts(comm, &hosts, NULL, NULL) == DCP_OK && hosts == 1);
    dcp_comm_destroy(comm);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1) {
        check_found(ranks);
    } else {
        check_found(1);
        check_environment();
        check_named();
    }
    check_named_together();
    MPI_Finalize();
    return 0;
}
