/* The communicator object, and the collectives as the library calls them: a failure becomes
 * DCP_ERR_COMM with one line that says which collective, and nothing is sent for nothing. All ranks
 * pass the same sizes to all but comm_alltoall, so leaving a collective out happens on all. */
#include "comm/comm.h"

#include <stdlib.h>

#include "core/fail.h"

dcp_comm *comm_create(const dcp_comm_ops *ops, void *ctx, void (*destroy_ctx)(void *ctx), int rank,
                      int size) {
    dcp_comm *comm = calloc(1, sizeof *comm + (size_t)size * sizeof *comm->eights);
    if (!comm) return NULL;
    for (int r = 0; r < size; r++) comm->eights[r] = sizeof *comm->eights;
    comm->ops = size == 1 ? comm_alone : *ops;
    comm->ctx = ctx;
    comm->destroy_ctx = destroy_ctx;
    comm->rank = rank;
    comm->size = size;
    return comm;
}

int dcp_comm_from_ops(const dcp_comm_ops *ops, void *ctx, int rank, int size, dcp_comm **out,
                      dcp_error *err) {
    if (!ops || !out) return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_ops: ops or out is NULL");
    if (!ops->broadcast || !ops->allreduce || !ops->gather || !ops->alltoall || !ops->barrier)
        return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_ops: all five functions are required");
    if (size < 1 || rank < 0 || rank >= size)
        return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_ops: rank %d of %d ranks does not exist",
                         rank, size);
    dcp_comm *comm = comm_create(ops, ctx, NULL, rank, size);
    if (!comm) return core_fail_memory(err, sizeof *comm);
    *out = comm;
    return DCP_OK;
}

int dcp_comm_rank(const dcp_comm *comm) { return comm->rank; }

int dcp_comm_size(const dcp_comm *comm) { return comm->size; }

void dcp_comm_destroy(dcp_comm *comm) {
    if (!comm) return;
    if (comm->destroy_ctx) comm->destroy_ctx(comm->ctx);
    free(comm);
}

static int checked(const dcp_comm *comm, const char *collective, int code, dcp_error *err) {
    if (code == 0) return DCP_OK;
    return core_fail(err, DCP_ERR_COMM,
                     "the %s among %d ranks failed with code %d on rank %d: a rank or the network "
                     "is gone; end this rank and start again",
                     collective, comm->size, code, comm->rank);
}

int comm_broadcast(dcp_comm *comm, void *buf, uint64_t bytes, int root, dcp_error *err) {
    if (bytes == 0) return DCP_OK;
    return checked(comm, "broadcast", comm->ops.broadcast(comm->ctx, buf, bytes, root), err);
}

int comm_allreduce(dcp_comm *comm, uint64_t *buf, uint64_t count, dcp_reduce op, dcp_error *err) {
    if (count == 0) return DCP_OK;
    return checked(comm, "all-reduce", comm->ops.allreduce(comm->ctx, buf, count, op), err);
}

int comm_gather(dcp_comm *comm, const void *send, uint64_t bytes, void *recv, int root,
                dcp_error *err) {
    if (bytes == 0) return DCP_OK;
    void *recv_on_root = comm->rank == root ? recv : NULL;
    return checked(comm, "gather", comm->ops.gather(comm->ctx, send, bytes, recv_on_root, root),
                   err);
}

int comm_alltoall(dcp_comm *comm, const void *send, const uint64_t *send_bytes, void *recv,
                  const uint64_t *recv_bytes, dcp_error *err) {
    return checked(comm, "all-to-all",
                   comm->ops.alltoall(comm->ctx, send, send_bytes, recv, recv_bytes), err);
}

int comm_barrier(dcp_comm *comm, dcp_error *err) {
    return checked(comm, "barrier", comm->ops.barrier(comm->ctx), err);
}
