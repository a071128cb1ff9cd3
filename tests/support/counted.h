/* A caller's table over MPI that counts its calls, and distinguishes those that carry tensors'
 * data: all bytes of a `bench_state` (bench_state.h) are COUNTED_BYTE, and a message with many of
 * these in a row contains data. */
#ifndef TESTS_COUNTED_H
#define TESTS_COUNTED_H

#include <stdlib.h>
#include <string.h>

#include "dcp/comm.h"
#include "support/check.h"
#include "support/unsigned_allreduce.h"

enum { COUNTED_CALLS = 1 << 16, COUNTED_BYTE = 0xc3, COUNTED_RANKS = 64, COUNTED_MARK = 32 };

typedef enum counted_op {
    COUNTED_BROADCAST,
    COUNTED_ALLREDUCE,
    COUNTED_GATHER,
    COUNTED_ALLTOALL,
    COUNTED_BARRIER,
    COUNTED_OPS
} counted_op;

static const char *const counted_names[COUNTED_OPS] = {"broadcast", "all-reduce", "gather",
                                                       "all-to-all", "barrier"};

typedef struct counted_call {
    uint64_t bytes; /* that this rank sends */
    int op, has_data;
} counted_call;

/* The calls of a rank, through the table or its duplicates, of which it uses only one at a time. */
static struct {
    counted_call list[COUNTED_CALLS];
    size_t n;
} counted;

static inline void counted_add(counted_op op, const void *data, uint64_t bytes) {
    unsigned char mark[COUNTED_MARK];
    memset(mark, COUNTED_BYTE, sizeof mark);
    CHECK(counted.n < COUNTED_CALLS);
    const int has_data = op == COUNTED_ALLTOALL && bytes && memmem(data, bytes, mark, sizeof mark);
    counted.list[counted.n++] = (counted_call){bytes, op, has_data};
}

static inline int counted_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    counted_add(COUNTED_BROADCAST, buf, bytes);
    return MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, *(MPI_Comm *)ctx);
}

static inline int counted_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    counted_add(COUNTED_ALLREDUCE, buf, count * sizeof *buf);
    return unsigned_allreduce(buf, count, op, *(MPI_Comm *)ctx);
}

static inline int counted_gather(void *ctx, const void *send, uint64_t bytes, void *recv,
                                 int root) {
    counted_add(COUNTED_GATHER, send, bytes);
    return MPI_Gather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, root,
                      *(MPI_Comm *)ctx);
}

static inline int counted_alltoall(void *ctx, const void *send, const uint64_t *send_bytes,
                                   void *recv, const uint64_t *recv_bytes) {
    int size, n[4][COUNTED_RANKS];
    uint64_t bytes = 0;
    MPI_Comm_size(*(MPI_Comm *)ctx, &size);
    for (int r = 0, out = 0, in = 0; r < size; r++) {
        n[0][r] = (int)send_bytes[r], n[1][r] = out, out += n[0][r];
        n[2][r] = (int)recv_bytes[r], n[3][r] = in, in += n[2][r];
        bytes += send_bytes[r];
    }
    counted_add(COUNTED_ALLTOALL, send, bytes);
    return MPI_Alltoallv(send, n[0], n[1], MPI_BYTE, recv, n[2], n[3], MPI_BYTE, *(MPI_Comm *)ctx);
}

static inline int counted_barrier(void *ctx) {
    counted_add(COUNTED_BARRIER, NULL, 0);
    return MPI_Barrier(*(MPI_Comm *)ctx);
}

static inline int counted_duplicate(void *ctx, void **out_ctx) {
    MPI_Comm *made = malloc(sizeof *made);
    *out_ctx = made;
    return made ? MPI_Comm_dup(*(MPI_Comm *)ctx, made) : 1;
}

static inline void counted_free(void *ctx) {
    MPI_Comm_free(ctx);
    free(ctx);
}

static const dcp_comm_ops counted_table = {.size = sizeof(dcp_comm_ops),
                                           .broadcast = counted_broadcast,
                                           .allreduce = counted_allreduce,
                                           .gather = counted_gather,
                                           .alltoall = counted_alltoall,
                                           .barrier = counted_barrier,
                                           .duplicate = counted_duplicate,
                                           .free = counted_free,
                                           .threads = 1};

static inline dcp_comm *counted_comm(void) {
    static MPI_Comm world;
    dcp_comm *comm = NULL;
    int rank, size;
    world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    CHECK(size <= COUNTED_RANKS);
    CHECK(dcp_comm_from_ops(&counted_table, &world, rank, size, &comm, NULL) == DCP_OK);
    return comm;
}

static inline void counted_begin(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    counted.n = 0;
}

/* Counts this rank's calls since counted_begin. */
static inline size_t counted_with_data(void) {
    size_t n = 0;
    for (size_t i = 0; i < counted.n; i++) n += counted.list[i].has_data != 0;
    return n;
}

/* Collective. Returns how many calls since counted_begin carried no rank's data. Rank 0 prints
 * them, one by one if DCP_TEST_CALLS is set. */
static inline unsigned counted_end(const char *what) {
    unsigned all[COUNTED_OPS] = {0}, apart = 0, rank;
    int size, first;
    uint64_t bytes = 0, most = counted.n, least = ~most;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &first);
    rank = (unsigned)first;
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    CHECK(most == ~least); /* all ranks take part in collectives */
    for (size_t i = 0; i < counted.n; i++) {
        counted_call *c = &counted.list[i];
        MPI_Allreduce(MPI_IN_PLACE, &c->has_data, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (!rank && getenv("DCP_TEST_CALLS"))
            printf("  %3zu %-10s %10llu bytes%s\n", i, counted_names[c->op],
                   (unsigned long long)c->bytes, c->has_data ? ", of tensors" : "");
        if (c->has_data) continue;
        all[c->op]++;
        apart++;
        bytes += c->bytes;
    }
    if (!rank) {
        printf("%-58s %3u beside %zu that carry data:", what, apart, counted.n - apart);
        for (int op = 0; op < COUNTED_OPS; op++)
            if (all[op]) printf(" %u %s%s", all[op], counted_names[op], all[op] > 1 ? "s" : "");
        printf(", %llu bytes a rank\n", (unsigned long long)bytes);
        fflush(stdout);
    }
    return apart;
}

#endif
