/* One rank alone: its collectives are copies or nothing, so no launcher and no MPI_Init is needed.
 */
#include <string.h>

#include "comm/comm.h"
#include "core/fail.h"

static int alone_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    (void)ctx, (void)buf, (void)bytes, (void)root;
    return 0;
}

static int alone_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    (void)ctx, (void)buf, (void)count, (void)op;
    return 0;
}

static int alone_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    (void)ctx, (void)root;
    if (bytes > 0) memmove(recv, send, bytes);
    return 0;
}

static int alone_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                          const uint64_t *recv_bytes) {
    (void)recv_bytes;
    return alone_gather(ctx, send, send_bytes[0], recv, 0);
}

static int alone_barrier(void *ctx) {
    (void)ctx;
    return 0;
}

const dcp_comm_ops comm_alone = {
    .broadcast = alone_broadcast,
    .allreduce = alone_allreduce,
    .gather = alone_gather,
    .alltoall = alone_alltoall,
    .barrier = alone_barrier,
};

int dcp_comm_self(dcp_comm **out, dcp_error *err) {
    if (!out) return core_fail(err, DCP_ERR_ARG, "dcp_comm_self: out is NULL");
    dcp_comm *comm = comm_create(&comm_alone, NULL, NULL, 0, 1);
    if (!comm) return core_fail_memory(err, sizeof *comm);
    *out = comm;
    return DCP_OK;
}
