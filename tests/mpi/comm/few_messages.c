/* Small collectives by messages: the number of messages that a rank sends, and of ranks to which it
 * sends, grows with the logarithm of the number of ranks. Large data are sent directly to their
 * receiver. In this test that begins with few ranks. */
#define PIECE_BYTES ((uint64_t)64 << 20)
#define PIPE_BYTES ((uint64_t)512 << 10)
#define HALVE_BYTES ((uint64_t)16 << 10)
#define FEW_RANKS 8
#define FEW_BYTES 4096
#define FIRST_BYTES ((uint64_t)16 << 10)
#define ROUTED_BYTES ((uint64_t)2 << 20)
#define ROUTED_PEERS 8
#include "comm/pairs.c"

#include <stdlib.h>
#include <string.h>

#include "comm/messages.h"
#include "dcp/mpi.h"
#include "support/check.h"

static int rank, ranks, rounds; /* rounds: 2^rounds is at least ranks */
static int sent, received, is_peer[64];

static int count_peers(void) {
    int n = 0;
    for (int r = 0; r < ranks; r++) n += is_peer[r];
    return n;
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    sent++;
    is_peer[to] = 1;
    return PMPI_Isend(buf, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request) {
    received++;
    is_peer[from] = 1;
    return PMPI_Irecv(buf, count, type, from, tag, comm, request);
}

static void begin(void) {
    sent = received = 0;
    memset(is_peer, 0, sizeof is_peer);
}

/* A reduction needs two more rounds if the number of ranks is not a power of two. */
static void check_counts(int messages) {
    CHECK(sent <= messages && received <= messages);
    CHECK(count_peers() <= 4 * rounds + 2 && count_peers() < ranks - 1);
}

static void reductions(dcp_comm *comm) {
    uint64_t sum = 1;
    begin();
    CHECK(comm_allreduce(comm, &sum, 1, DCP_REDUCE_SUM, NULL) == DCP_OK);
    CHECK(sum == (uint64_t)ranks);
    check_counts(rounds + 1);
    begin();
    CHECK(comm_barrier(comm, NULL) == DCP_OK);
    check_counts(rounds);
}

static void gathers(dcp_comm *comm) {
    uint64_t own = (uint64_t)rank + 5, *all = calloc((size_t)ranks, sizeof *all);
    for (int root = 0; root < ranks; root++) {
        begin();
        CHECK(comm_gather(comm, &own, sizeof own, all, root, NULL) == DCP_OK);
        for (int r = 0; r < ranks && rank == root; r++) CHECK(all[r] == (uint64_t)r + 5);
        CHECK(sent <= 2 && received <= 2 * rounds && count_peers() <= rounds);
    }
    free(all);
}

/* 8 bytes from each rank to each. */
static void small_alltoalls(dcp_comm *comm) {
    uint64_t *out = calloc(2 * (size_t)ranks, sizeof *out), *in = out + ranks;
    for (int r = 0; r < ranks; r++) out[r] = (uint64_t)(rank * 1000 + r);
    begin();
    CHECK(comm_alltoall(comm, out, comm->eights, in, comm->eights, NULL) == DCP_OK);
    check_counts(2 * rounds + 1);
    for (int r = 0; r < ranks; r++) CHECK(in[r] == (uint64_t)(r * 1000 + rank));
    free(out);
}

/* Sizes vary, and only both ends know them; some are longer than the first part of a round. */
static void small_messages(dcp_comm *comm, uint64_t most) {
    comm_buffer send = {0}, receive = {0};
    uint64_t *bytes = calloc(2 * (size_t)ranks, sizeof *bytes), *received_bytes = bytes + ranks;
    for (int r = 0; r < ranks; r++) {
        bytes[r] = (uint64_t)((rank * 7 + r * 3) % 11) * most / 10;
        memset(comm_buffer_append(&send, bytes[r]), 1 + rank * 16 + r, bytes[r]);
    }
    begin();
    CHECK(!comm_buffer_exchange(comm, &send, bytes, &receive, received_bytes, NULL));
    CHECK(count_peers() <= 4 * rounds + 2 && count_peers() < ranks - 1);
    const unsigned char *at = receive.data;
    for (int r = 0; r < ranks; r++) {
        CHECK(received_bytes[r] == (uint64_t)((r * 7 + rank * 3) % 11) * most / 10);
        for (uint64_t i = 0; i < received_bytes[r]; i++)
            CHECK(*at++ == (unsigned char)(1 + r * 16 + rank));
    }
    free(bytes);
    free(send.data);
    free(receive.data);
}

/* Only to the next rank. */
static void one_large_message(dcp_comm *comm) {
    const size_t n = (size_t)ranks, large = (size_t)4 << 20;
    uint64_t *out = calloc(2 * n, sizeof *out), *in = out + n;
    unsigned char *send = malloc(large), *receive = malloc(large);
    out[(rank + 1) % ranks] = in[(rank + ranks - 1) % ranks] = large;
    memset(send, rank + 1, large);
    begin();
    CHECK(comm_alltoall(comm, send, out, receive, in, NULL) == DCP_OK);
    CHECK(receive[0] == (rank + ranks - 1) % ranks + 1 && receive[large - 1] == receive[0]);
    check_counts(rounds + 2);
    free(out), free(send), free(receive);
}

int main(int argc, char **argv) {
    dcp_comm *comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while (1 << rounds < ranks) rounds++;
    setenv("DCP_SHARED_MEMORY", "0", 1);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    reductions(comm);
    gathers(comm);
    small_alltoalls(comm);
    small_messages(comm, 100);
    small_messages(comm, 60000);
    one_large_message(comm);
    dcp_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
