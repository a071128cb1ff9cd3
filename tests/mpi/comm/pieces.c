/* The collectives over MPI, with pieces of 24 bytes, so every size is cut somewhere: with all sizes
 * below, at and above the edges, and different ones for each pair of ranks. */
#define PIECE_BYTES ((uint64_t)24)
#define PIPE_BYTES ((uint64_t)11)
#define HALVE_BYTES ((uint64_t)16)
#define FEW_RANKS 2
#define FEW_BYTES 60
#define FIRST_BYTES ((uint64_t)40)
#define ROUTED_BYTES ((uint64_t)150)
#define ROUTED_PEERS 1
#ifndef HOSTS
#define HOSTS 1
#endif
#ifndef SLOT_BYTES
#define SLOT_BYTES ((size_t)0) /* no memory is shared: everything is sent by messages */
#endif
#include "comm/batch.c"
#include "comm/comm.c"
#include "comm/host.c"
#include "comm/messages.c"
#include "comm/mpi.c"
#include "comm/pairs.c"
#include "comm/process.c"
#include "comm/sharing.c"
#include "comm/vote.c"
#include "support/check.h"

#define LARGEST 100

static unsigned char pattern(int from, int to, uint64_t i) {
    return (unsigned char)(from * 31 + to * 57 + (int)i * 7 + 1);
}

static void check_broadcast(dcp_comm *comm, uint64_t bytes, int root) {
    unsigned char buf[LARGEST + 1] = {0};
    if (comm->rank == root)
        for (uint64_t i = 0; i < bytes; i++) buf[i] = pattern(root, 0, i);
    CHECK(comm_broadcast(comm, buf, bytes, root, NULL) == DCP_OK);
    for (uint64_t i = 0; i < bytes; i++) CHECK(buf[i] == pattern(root, 0, i));
    CHECK(buf[bytes] == 0);
}

static void check_gather(dcp_comm *comm, uint64_t bytes, int root) {
    unsigned char send[LARGEST], *recv = calloc((size_t)comm->size + 1, LARGEST);
    for (uint64_t i = 0; i < bytes; i++) send[i] = pattern(comm->rank, root, i);
    CHECK(comm_gather(comm, send, bytes, recv, root, NULL) == DCP_OK);
    for (int r = 0; comm->rank == root && r < comm->size; r++)
        for (uint64_t i = 0; i < bytes; i++)
            CHECK(recv[(uint64_t)r * bytes + i] == pattern(r, root, i));
    CHECK(recv[(uint64_t)comm->size * bytes] == 0);
    free(recv);
}

static uint64_t reduced(dcp_reduce op, int size, uint64_t i) {
    uint64_t sum = 0, bits = 0, n = (uint64_t)size;
    for (uint64_t r = 0; r < n; r++) sum += r * r + i, bits ^= r * r + i;
    switch (op) {
    case DCP_REDUCE_MAX:
        return (n - 1) * (n - 1) + i;
    case DCP_REDUCE_MIN:
        return i;
    case DCP_REDUCE_SUM:
        return sum;
    case DCP_REDUCE_XOR:
        return bits;
    }
    return 0;
}

static void check_allreduce(dcp_comm *comm, uint64_t count, dcp_reduce op) {
    uint64_t buf[LARGEST], r = (uint64_t)comm->rank;
    for (uint64_t i = 0; i < count; i++) buf[i] = r * r + i;
    CHECK(comm_allreduce(comm, buf, count, op, NULL) == DCP_OK);
    for (uint64_t i = 0; i < count; i++) CHECK(buf[i] == reduced(op, comm->size, i));
}

/* Between 0 and LARGEST bytes from one rank to another, often 0. */
static uint64_t between(int from, int to, int seed) {
    unsigned mixed = (unsigned)(from * 7919 + to * 104729 + seed * 1299709) * 2654435761u >> 8;
    return mixed % 3 == 0 ? 0 : mixed % (LARGEST + 1);
}

static void check_alltoall(dcp_comm *comm, int seed) {
    size_t n = (size_t)comm->size;
    uint64_t *send_bytes = malloc(n * sizeof *send_bytes),
             *recv_bytes = malloc(n * sizeof(uint64_t));
    unsigned char *send = malloc(n * LARGEST), *recv = malloc(n * LARGEST), *at = send;
    for (int r = 0; r < comm->size; r++) {
        send_bytes[r] = between(comm->rank, r, seed);
        recv_bytes[r] = between(r, comm->rank, seed);
        for (uint64_t i = 0; i < send_bytes[r]; i++) *at++ = pattern(comm->rank, r, i);
    }
    CHECK(comm_alltoall(comm, send, send_bytes, recv, recv_bytes, NULL) == DCP_OK);
    at = recv;
    for (int r = 0; r < comm->size; r++)
        for (uint64_t i = 0; i < recv_bytes[r]; i++) CHECK(*at++ == pattern(r, comm->rank, i));
    free(recv), free(send), free(recv_bytes), free(send_bytes);
}

/* Sends the same sizes as messages between the ranks that have something to send. */
static void check_messages(dcp_comm *comm, int seed) {
    size_t n = (size_t)comm->size, sends = 0, receives = 0;
    dcp_comm_message *send = calloc(n, sizeof *send), *receive = calloc(n, sizeof *receive);
    unsigned char *out = malloc(n * LARGEST), *in = calloc(n, LARGEST);
    for (int r = 0; r < comm->size; r++) {
        uint64_t to = between(comm->rank, r, seed), from = between(r, comm->rank, seed);
        unsigned char *at = out + r * LARGEST;
        for (uint64_t i = 0; i < to; i++) at[i] = pattern(comm->rank, r, i);
        if (r == comm->rank) continue;
        if (to || r % 2) send[sends++] = (dcp_comm_message){at, to, r};
        if (from || comm->rank % 2)
            receive[receives++] = (dcp_comm_message){in + r * LARGEST, from, r};
    }
    CHECK(comm_exchange_run(comm, send, sends, receive, receives, NULL) == DCP_OK);
    for (size_t k = 0; k < receives; k++)
        for (uint64_t i = 0; i < LARGEST; i++)
            CHECK(((unsigned char *)receive[k].data)[i] ==
                  (i < receive[k].bytes ? pattern(receive[k].peer, comm->rank, i) : 0));
    free(in), free(out), free(receive), free(send);
}

static void check_all(dcp_comm *comm) {
    for (int root = 0; root < comm->size; root++)
        for (uint64_t bytes = 0; bytes < LARGEST; bytes += bytes < 26 ? 1 : 19) {
            check_broadcast(comm, bytes, root);
            check_gather(comm, bytes, root);
        }
    for (uint64_t count = 0; count < 20; count += count < 5 ? 1 : 4)
        for (int op = DCP_REDUCE_MAX; op <= DCP_REDUCE_XOR; op++)
            check_allreduce(comm, count, (dcp_reduce)op);
    for (int seed = 0; seed < 20; seed++) check_alltoall(comm, seed);
    for (int seed = 0; seed < 20; seed++) check_messages(comm, seed);
    CHECK(comm_barrier(comm, NULL) == DCP_OK);
}

/* Only a few of each, because a duplicate that works by messages sleeps between them. */
static void check_duplicate(dcp_comm *comm) {
    for (uint64_t bytes = 23; bytes < LARGEST; bytes += 25) {
        check_broadcast(comm, bytes, comm->size - 1);
        check_gather(comm, bytes, 0);
    }
    check_allreduce(comm, 9, DCP_REDUCE_SUM);
    for (int seed = 0; seed < 5; seed++) check_alltoall(comm, seed);
    for (int seed = 0; seed < 5; seed++) check_messages(comm, seed);
    CHECK(comm_barrier(comm, NULL) == DCP_OK);
}

static int host_of(int rank) { return rank * 5 % 7 % HOSTS; }

/* Checks that the collectives use the way that this test is for. */
static void check_way(const dcp_comm *comm) {
    int groups = 0, seen[HOSTS] = {0};
    for (int r = 0; r < comm->size; r++) groups += SLOT_BYTES == 0 || !seen[host_of(r)]++;
    const dcp_comm_ops *ops = groups == comm->size ? &comm_pairs_ops
                              : groups == 1        ? &comm_host_ops
                                                   : &comm_levels_ops;
    CHECK(comm->size == 1 || comm->ops.allreduce == ops->allreduce);
}

static void name_host(void) {
    char name[16];
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "host %d", host_of(rank));
    setenv("DCP_HOST", name, 1);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    dcp_comm *comm, *duplicate;
    name_host();
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    check_way(comm);
    check_all(comm);
    CHECK(comm->duplicate && comm->duplicate(comm, &duplicate, NULL) == DCP_OK);
    check_duplicate(duplicate);
    dcp_comm_destroy(duplicate);
    dcp_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
