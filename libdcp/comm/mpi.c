/* A communicator over MPI: by messages between hosts, through shared memory on one host.
 *
 * Counts of MPI-3 are ints, so what is larger goes in pieces. Every rank derives the pieces from
 * sizes that both sides know, so no rank waits for a piece that is not sent. No memory is allocated
 * between collectives. */
#include "dcp/mpi.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "comm/host.h"
#include "core/bytes.h"
#include "core/fail.h"

#ifndef PIECE_BYTES /* tests set it small */
#define PIECE_BYTES ((uint64_t)1 << 30)
#endif
#define PEERS_AT_ONCE 32
#define ALLTOALL_TAG 1

static MPI_Comm comm_of(void *ctx) { return ((comm_mpi *)ctx)->comm; }

/* MPI waits by asking again and again. A thread beside one that computes must leave it the core. */
static int sleep_until_done(int n, MPI_Request *requests) {
    struct timespec pause = {.tv_nsec = 20000};
    for (int done = 0;;) {
        int code = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS || done) return code;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 2000000) pause.tv_nsec += pause.tv_nsec / 2;
    }
}

static int sleeps(void *ctx) { return ((comm_mpi *)ctx)->yields; }

static int finish_requests(void *ctx, int n, MPI_Request *requests) {
    return sleeps(ctx) ? sleep_until_done(n, requests)
                       : MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

/* The same for one request, where starting it worked. */
static int finish_request(void *ctx, int code, MPI_Request request) {
    return code == MPI_SUCCESS ? finish_requests(ctx, 1, &request) : code;
}

static int broadcast_piece(void *ctx, void *buf, int count, int root) {
    MPI_Request request;
    if (!sleeps(ctx)) return MPI_Bcast(buf, count, MPI_BYTE, root, comm_of(ctx));
    int code = MPI_Ibcast(buf, count, MPI_BYTE, root, comm_of(ctx), &request);
    return finish_request(ctx, code, request);
}

static int mpi_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    int code = MPI_SUCCESS;
    for (uint64_t done = 0; done < bytes && code == MPI_SUCCESS; done += PIECE_BYTES) {
        int count = (int)core_min_u64(bytes - done, PIECE_BYTES);
        code = broadcast_piece(ctx, (char *)buf + done, count, root);
    }
    return code;
}

static MPI_Op op_of(dcp_reduce op) {
    switch (op) {
    case DCP_REDUCE_MAX:
        return MPI_MAX;
    case DCP_REDUCE_MIN:
        return MPI_MIN;
    case DCP_REDUCE_SUM:
        return MPI_SUM;
    case DCP_REDUCE_XOR:
        return MPI_BXOR;
    }
    return MPI_OP_NULL;
}

static int allreduce_piece(void *ctx, uint64_t *buf, int n, MPI_Op op) {
    MPI_Request request;
    MPI_Comm comm = comm_of(ctx);
    if (!sleeps(ctx)) return MPI_Allreduce(MPI_IN_PLACE, buf, n, MPI_UINT64_T, op, comm);
    int code = MPI_Iallreduce(MPI_IN_PLACE, buf, n, MPI_UINT64_T, op, comm, &request);
    return finish_request(ctx, code, request);
}

static int mpi_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    const uint64_t piece = PIECE_BYTES / sizeof *buf;
    int code = MPI_SUCCESS;
    for (uint64_t done = 0; done < count && code == MPI_SUCCESS; done += piece) {
        int n = (int)core_min_u64(count - done, piece);
        code = allreduce_piece(ctx, buf + done, n, op_of(op));
    }
    return code;
}

/* Bytes [0, count) of each rank to recv[rank * stride]. The received type's extent is the stride,
 * so that no product with the number of ranks has to fit into an int. */
static int gather_piece(void *ctx, const void *send, int count, void *recv, uint64_t stride,
                        int root) {
    MPI_Datatype dense, strided;
    MPI_Request request;
    int code = MPI_Type_contiguous(count, MPI_BYTE, &dense);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_resized(dense, 0, (MPI_Aint)stride, &strided);
    if (code != MPI_SUCCESS) goto free_dense;
    code = MPI_Type_commit(&strided);
    if (code == MPI_SUCCESS)
        code = MPI_Igather(send, count, MPI_BYTE, recv, 1, strided, root, comm_of(ctx), &request);
    code = finish_request(ctx, code, request);
    MPI_Type_free(&strided);
free_dense:
    MPI_Type_free(&dense);
    return code;
}

static int mpi_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    int code = MPI_SUCCESS;
    for (uint64_t done = 0; done < bytes && code == MPI_SUCCESS; done += PIECE_BYTES)
        code = gather_piece(ctx, (const char *)send + done,
                            (int)core_min_u64(bytes - done, PIECE_BYTES),
                            recv ? (char *)recv + done : NULL, bytes, root);
    return code;
}

/* A walk around the ring of ranks over a buffer that holds bytes[r] for each rank r. */
typedef struct mpi_ring {
    const uint64_t *bytes;
    int size;
    int peer;
    uint64_t offset; /* of the peer's bytes */
} mpi_ring;

static mpi_ring ring_at(const uint64_t *bytes, int size, int peer) {
    mpi_ring ring = {bytes, size, peer, 0};
    for (int r = 0; r < peer; r++) ring.offset += bytes[r];
    return ring;
}

static void ring_up(mpi_ring *ring) {
    ring->offset += ring->bytes[ring->peer];
    if (++ring->peer == ring->size) *ring = ring_at(ring->bytes, ring->size, 0);
}

static void ring_down(mpi_ring *ring) {
    if (ring->peer == 0) *ring = ring_at(ring->bytes, ring->size, ring->size);
    ring->offset -= ring->bytes[--ring->peer];
}

/* Bytes of the peer's piece number `piece`: 0 where it has fewer pieces. */
static int piece_bytes(const mpi_ring *ring, uint64_t piece) {
    uint64_t begin = piece * PIECE_BYTES, bytes = ring->bytes[ring->peer];
    return begin < bytes ? (int)core_min_u64(bytes - begin, PIECE_BYTES) : 0;
}

/* Piece number `piece` between all pairs of ranks. At distance d each rank sends d up and receives
 * from d below; some distances are under way at once. No deadlock: a rank that is behind all others
 * finds its partners' sends and receives posted. */
static int alltoall_piece(void *ctx, uint64_t piece, const char *send, mpi_ring to, char *recv,
                          mpi_ring from) {
    MPI_Comm comm = comm_of(ctx);
    int code = MPI_SUCCESS;
    for (int d = 1; d < to.size && code == MPI_SUCCESS;) {
        MPI_Request requests[2 * PEERS_AT_ONCE];
        int n = 0;
        for (int k = 0; k < PEERS_AT_ONCE && d < to.size && code == MPI_SUCCESS; k++, d++) {
            ring_up(&to);
            ring_down(&from);
            int in = piece_bytes(&from, piece), out = piece_bytes(&to, piece);
            if (in > 0)
                code = MPI_Irecv(recv + from.offset + piece * PIECE_BYTES, in, MPI_BYTE, from.peer,
                                 ALLTOALL_TAG, comm, &requests[n++]);
            if (out > 0 && code == MPI_SUCCESS)
                code = MPI_Isend(send + to.offset + piece * PIECE_BYTES, out, MPI_BYTE, to.peer,
                                 ALLTOALL_TAG, comm, &requests[n++]);
        }
        if (code == MPI_SUCCESS) code = finish_requests(ctx, n, requests);
    }
    return code;
}

static int mpi_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                        const uint64_t *recv_bytes) {
    MPI_Comm comm = comm_of(ctx);
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    mpi_ring to = ring_at(send_bytes, size, rank), from = ring_at(recv_bytes, size, rank);
    if (send_bytes[rank] > 0)
        memcpy((char *)recv + from.offset, (const char *)send + to.offset, send_bytes[rank]);

    uint64_t largest = 0;
    for (int r = 0; r < size; r++) {
        if (send_bytes[r] > largest) largest = send_bytes[r];
        if (recv_bytes[r] > largest) largest = recv_bytes[r];
    }
    int code = MPI_SUCCESS;
    for (uint64_t piece = 0; piece * PIECE_BYTES < largest && code == MPI_SUCCESS; piece++)
        code = alltoall_piece(ctx, piece, send, to, recv, from);
    return code;
}

static int mpi_barrier(void *ctx) {
    MPI_Request request;
    if (!sleeps(ctx)) return MPI_Barrier(comm_of(ctx));
    int code = MPI_Ibarrier(comm_of(ctx), &request);
    return finish_request(ctx, code, request);
}

static const dcp_comm_ops mpi_ops = {
    .broadcast = mpi_broadcast,
    .allreduce = mpi_allreduce,
    .gather = mpi_gather,
    .alltoall = mpi_alltoall,
    .barrier = mpi_barrier,
};

static void mpi_destroy(void *context) {
    comm_mpi *ctx = context;
    int finalized = 0;
    MPI_Finalized(&finalized);
    comm_host_leave(ctx);
    if (!finalized) MPI_Comm_free(&ctx->comm);
    free(ctx);
}

static int check_mpi(MPI_Comm comm, dcp_error *err) {
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return core_fail(err, DCP_ERR_STATE,
                         "dcp_comm_from_mpi: call it between MPI_Init and MPI_Finalize");
    if (comm == MPI_COMM_NULL)
        return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_mpi: the communicator is MPI_COMM_NULL");
    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        return core_fail(err, DCP_ERR_ARG,
                         "dcp_comm_from_mpi: an inter-communicator; merge it first");
    return DCP_OK;
}

static int make_mpi(MPI_Comm comm, int yields, dcp_comm **out, dcp_error *err);

static int duplicate_mpi(dcp_comm *comm, dcp_comm **out, dcp_error *err) {
    return make_mpi(comm_of(comm->ctx), 1, out, err);
}

static int threads_may_call(void) {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE;
}

static int make_mpi(MPI_Comm comm, int yields, dcp_comm **out, dcp_error *err) {
    comm_mpi made = {.yields = yields}, *ctx = malloc(sizeof *ctx);
    if (MPI_Comm_dup(comm, &made.comm) != MPI_SUCCESS) {
        free(ctx);
        return core_fail(err, DCP_ERR_COMM, "dcp_comm_from_mpi: MPI_Comm_dup failed");
    }
    MPI_Comm_set_errhandler(made.comm, MPI_ERRORS_RETURN);
    const dcp_comm_ops *ops = comm_host_join(&made) ? &comm_host_ops : &mpi_ops;
    int rank, size;
    MPI_Comm_rank(made.comm, &rank);
    MPI_Comm_size(made.comm, &size);

    dcp_comm *c = ctx ? comm_create(ops, ctx, mpi_destroy, rank, size) : NULL;
    int all_made = c != NULL;
    if (MPI_Allreduce(MPI_IN_PLACE, &all_made, 1, MPI_INT, MPI_MIN, made.comm) != MPI_SUCCESS ||
        !all_made) {
        free(c);
        free(ctx);
        comm_host_leave(&made);
        MPI_Comm_free(&made.comm);
        return core_fail_memory(err, sizeof *c + sizeof *ctx);
    }
    *ctx = made;
    if (ops == &comm_host_ops) c->shared = &ctx->host.shared;
    if (threads_may_call()) c->duplicate = duplicate_mpi;
    *out = c;
    return DCP_OK;
}

int dcp_comm_from_mpi(MPI_Comm comm, dcp_comm **out, dcp_error *err) {
    if (!out) return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_mpi: out is NULL");
    int status = check_mpi(comm, err);
    return status == DCP_OK ? make_mpi(comm, 0, out, err) : status;
}
