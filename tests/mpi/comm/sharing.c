/* Sharing groups: the ranks of each host share areas, even if there are several hosts; a rank that
 * must not share is in a group of its own. Areas grow, and their marks are 0 at first. */
#include "comm/sharing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "dcp/mpi.h"
#include "support/check.h"

static int rank, ranks;

static unsigned char pattern(int from, size_t i) {
    return (unsigned char)(from * 31 + (int)(i % 251) + 1);
}

/* Each rank fills an area, and all ranks of its group read it. */
static void check_areas(dcp_comm *comm, size_t bytes) {
    const comm_local *l = &comm->local;
    const size_t n = (size_t)l->size;
    const comm_areas *areas, *again;
    size_t *sizes = malloc(n * sizeof *sizes);
    CHECK(sizes);
    for (size_t i = 0; i < n; i++) sizes[i] = bytes + 5000 * i;
    CHECK(comm_local_areas(comm, n, sizes, &areas, NULL) == DCP_OK);
    CHECK(areas->n >= n);
    unsigned char *own = areas->data[l->rank];
    const unsigned char *first = areas->data[0];
    const size_t pages = (sizes[l->rank] + PAGE_BYTES - 1) / PAGE_BYTES;
    CHECK((uintptr_t)own % PAGE_BYTES == 0);
    for (size_t i = 0; i < sizes[l->rank]; i++) own[i] = pattern(rank, i);
    for (size_t page = 0; page < pages; page++)
        CHECK(atomic_fetch_add(&areas->marks[l->rank][page], (uint16_t)(page + 7)) == 0);
    CHECK(comm_local_barrier(comm, NULL) == DCP_OK);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < sizes[k]; i += 97)
            CHECK(areas->data[k][i] == pattern(l->ranks[k], i));
    CHECK(areas->marks[n - 1][0] == 7);
    CHECK(comm_local_barrier(comm, NULL) == DCP_OK);
    for (size_t page = 0; page < pages; page++)
        CHECK(comm_areas_take_mark(areas, (size_t)l->rank, page) == page + 7);
    CHECK(comm_local_areas(comm, 1, &bytes, &again, NULL) == DCP_OK);
    CHECK(again->data[0] == first); /* it is large enough */
    free(sizes);
}

static void check_max(dcp_comm *comm) {
    const comm_local *l = &comm->local;
    uint64_t values[2] = {(uint64_t)rank, (uint64_t)(ranks - rank)};
    CHECK(comm_local_max(comm, values, 2, NULL) == DCP_OK);
    CHECK(values[0] == (uint64_t)l->ranks[l->size - 1]);
    CHECK(values[1] == (uint64_t)(ranks - l->ranks[0]));
}

/* Ranks r with equal r % hosts are on one host. */
static void check_comm(dcp_comm *comm, int hosts, int shares) {
    const comm_local *l = &comm->local;
    const comm_groups *found;
    CHECK(comm_hosts(comm, &found, NULL) == DCP_OK);
    CHECK(found->n == hosts && found->own == rank % hosts);
    for (int r = 0; r < ranks; r++) CHECK(found->of[r] == r % hosts);
    CHECK(l->groups->n == (shares ? hosts : ranks));
    CHECK(l->ranks[l->rank] == rank && l->size == comm_groups_size(l->groups, l->groups->own));
    CHECK(l->size == (shares ? (ranks - rank % hosts + hosts - 1) / hosts : 1));
    check_areas(comm, 3000);
    check_areas(comm, 3000);
    check_areas(comm, (size_t)5 << 20);
    check_max(comm);
    CHECK(comm_barrier(comm, NULL) == DCP_OK);
}

static void check_hosts(int hosts, const char *shared) {
    dcp_comm *comm, *other = NULL;
    char name[32];
    const int shares = *shared == '1';
    snprintf(name, sizeof name, "host %d", rank % hosts);
    setenv("DCP_HOST", name, 1);
    setenv("DCP_SHARED_MEMORY", shared, 1);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    check_comm(comm, hosts, shares);
    CHECK(comm_duplicate(comm, &other, NULL) == DCP_OK);
    if (other) check_comm(other, hosts, shares);
    dcp_comm_destroy(other);
    CHECK(dcp_comm_set_host(comm, "one", NULL) == DCP_OK);
    check_comm(comm, 1, shares);
    CHECK(dcp_comm_set_host(comm, NULL, NULL) == DCP_OK);
    check_comm(comm, hosts, shares);
    dcp_comm_destroy(comm);
}

/* A table's ranks share nothing, whichever hosts they are on. */
static void check_table(void) {
    dcp_comm *below, *comm;
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &below, NULL) == DCP_OK);
    CHECK(dcp_comm_from_ops(&below->ops, below->ctx, rank, ranks, &comm, NULL) == DCP_OK);
    check_comm(comm, ranks < 2 ? 1 : 2, ranks == 1);
    dcp_comm_destroy(comm);
    dcp_comm_destroy(below);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int hosts = 1; hosts <= ranks && hosts <= 4; hosts++) {
        check_hosts(hosts, "1");
        check_hosts(hosts, "0");
    }
    setenv("DCP_HOST", rank % 2 ? "odd" : "even", 1);
    check_table();
    MPI_Finalize();
    return 0;
}
