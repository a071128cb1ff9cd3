/* Messages between ranks that know of them: each byte arrives at its place, whichever ranks
 * communicate. Over MPI and over a caller's table with `exchange`, ranks without messages need not
 * call; over a table without it all ranks do. */
#include "comm/messages.h"

#include <stdlib.h>
#include <string.h>

#include "dcp/mpi.h"
#include "support/check.h"

enum { FEW, RING, ALL, LARGE, PATTERNS };

static int rank, ranks, exchanges;

/* The number of bytes from one rank to another; 0: no message. */
static uint64_t bytes_of(int pattern, int from, int to) {
    const int distance = (to - from + ranks) % ranks;
    if (from == to) return 0;
    if (pattern == RING) return distance == 1 ? 100000 : 0;
    if (pattern == LARGE) return from == 0 || to == 0 ? (uint64_t)3 << 20 : 0;
    if (pattern == ALL) return 1 + (uint64_t)((from * 7 + to * 3) % 50);
    return (from + to) % 4 == 1 ? 5000 : 0; /* some ranks may have none */
}

static unsigned char value_of(int from, int to, uint64_t i) {
    return (unsigned char)(from * 31 + to * 57 + (int)(i % 251) + 1);
}

static size_t list_messages(int pattern, int out, dcp_comm_message *list) {
    size_t n = 0;
    for (int r = 0; r < ranks; r++) {
        const uint64_t bytes = out ? bytes_of(pattern, rank, r) : bytes_of(pattern, r, rank);
        if (!bytes) continue;
        unsigned char *data = calloc(1, bytes);
        CHECK(data);
        for (uint64_t i = 0; i < bytes && out; i++) data[i] = value_of(rank, r, i);
        list[n++] = (dcp_comm_message){data, bytes, r};
    }
    return n;
}

static void check_pattern(dcp_comm *comm, int pattern, int with_collectives) {
    dcp_comm_message *send = calloc((size_t)ranks, sizeof *send);
    dcp_comm_message *receive = calloc((size_t)ranks, sizeof *receive);
    const size_t sends = list_messages(pattern, 1, send);
    const size_t receives = list_messages(pattern, 0, receive);
    comm_exchange m;
    uint64_t sum = 1;
    CHECK(comm_exchange_reserve(comm, (uint64_t)64 << 20, (uint64_t)64 << 20, NULL) == DCP_OK);
    if (sends || receives || comm_exchange_is_collective(comm)) {
        comm_exchange_begin(&m, comm, send, sends, receive, receives);
        if (with_collectives && pattern == ALL) { /* in which all have messages */
            CHECK(comm_allreduce(comm, &sum, 1, DCP_REDUCE_SUM, NULL) == DCP_OK);
            CHECK(sum == (uint64_t)ranks);
        }
        CHECK(comm_exchange_finish(&m, NULL) == DCP_OK);
    }
    for (size_t k = 0; k < receives; k++)
        for (uint64_t i = 0; i < receive[k].bytes; i++)
            CHECK(((unsigned char *)receive[k].data)[i] == value_of(receive[k].peer, rank, i));
    for (size_t k = 0; k < sends; k++) free(send[k].data);
    for (size_t k = 0; k < receives; k++) free(receive[k].data);
    free(send);
    free(receive);
}

static void check_comm(dcp_comm *comm, int is_collective) {
    CHECK(comm_exchange_is_collective(comm) == (is_collective && ranks > 1));
    for (int pattern = 0; pattern < PATTERNS; pattern++)
        for (int again = 0; again < 2; again++) check_pattern(comm, pattern, again);
    CHECK(comm_barrier(comm, NULL) == DCP_OK);
}

static void over_mpi(const char *shared) {
    dcp_comm *comm, *other = NULL;
    setenv("DCP_SHARED_MEMORY", shared, 1);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    check_comm(comm, 0);
    CHECK(comm_duplicate(comm, &other, NULL) == DCP_OK);
    if (other) check_comm(other, 0);
    dcp_comm_destroy(other);
    dcp_comm_destroy(comm);
}

/* An exchange as a launcher may have it. */
static int exchange(void *ctx, const dcp_comm_message *send, uint64_t sends,
                    const dcp_comm_message *receive, uint64_t receives) {
    MPI_Request *requests = calloc(sends + receives, sizeof *requests), *next = requests;
    (void)ctx;
    exchanges++;
    CHECK(requests && sends + receives > 0);
    for (uint64_t i = 0; i < sends; i++)
        MPI_Isend(send[i].data, (int)send[i].bytes, MPI_BYTE, send[i].peer, 7, MPI_COMM_WORLD,
                  next++);
    for (uint64_t i = 0; i < receives; i++)
        MPI_Irecv(receive[i].data, (int)receive[i].bytes, MPI_BYTE, receive[i].peer, 7,
                  MPI_COMM_WORLD, next++);
    MPI_Waitall((int)(sends + receives), requests, MPI_STATUSES_IGNORE);
    free(requests);
    return 0;
}

static int fail_exchange(void *ctx, const dcp_comm_message *send, uint64_t sends,
                         const dcp_comm_message *receive, uint64_t receives) {
    (void)ctx, (void)send, (void)sends, (void)receive, (void)receives;
    exchanges++;
    return 7;
}

static void over_a_table(int has_exchange) {
    dcp_comm *below, *comm;
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &below, NULL) == DCP_OK);
    dcp_comm_ops ops = below->ops;
    if (has_exchange) ops.exchange = exchange;
    exchanges = 0;
    CHECK(dcp_comm_from_ops(&ops, below->ctx, rank, ranks, &comm, NULL) == DCP_OK);
    check_comm(comm, !has_exchange);
    CHECK((exchanges > 0) == (has_exchange && ranks > 1));
    dcp_comm_destroy(comm);
    dcp_comm_destroy(below);
}

/* A failure breaks the communicator: the table is not called again. */
static void a_table_that_fails(void) {
    dcp_comm *below, *comm;
    dcp_error err = {0};
    char byte = 0;
    dcp_comm_message one = {&byte, 1, (rank + 1) % ranks};
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &below, NULL) == DCP_OK);
    dcp_comm_ops ops = below->ops;
    ops.exchange = fail_exchange;
    exchanges = 0;
    CHECK(dcp_comm_from_ops(&ops, below->ctx, rank, ranks, &comm, NULL) == DCP_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(comm_exchange_run(comm, &one, 1, NULL, 0, &err) == DCP_ERR_COMM);
        CHECK(strstr(err.message, "exchange of messages") && strstr(err.message, "code 7"));
        CHECK(err.rank == rank && exchanges == 1);
    }
    CHECK(comm_barrier(comm, &err) == DCP_ERR_COMM);
    dcp_comm_destroy(comm);
    dcp_comm_destroy(below);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    over_mpi("1");
    over_mpi("0");
    over_a_table(0);
    over_a_table(1);
    if (ranks > 1) a_table_that_fails();
    MPI_Finalize();
    return 0;
}
