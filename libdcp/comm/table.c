/* A communicator over a caller's table of functions. With one rank, none of the functions is
 * called. The ranks share no memory, since the library does not know whether they could. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/checks.h"
#include "core/fail.h"

static void free_duplicate(dcp_comm *comm) { comm->ops.free(comm->ctx); }

/* Collective: requests a duplicate from the table, and gives it to `made`. */
static int query_table(const dcp_comm *comm, dcp_comm *made, dcp_error *err) {
    void *ctx = NULL;
    const int code = comm->ops.duplicate(comm->ctx, &ctx);
    if (code)
        return core_fail(err, DCP_ERR_COMM, "the table's duplicate failed with code %d", code);
    made->ctx = ctx;
    made->destroy_ctx = free_duplicate;
    return DCP_OK;
}

/* If the table makes no duplicate on one rank, the other ranks free theirs. The table's other
 * functions have not failed then, so `comm` remains usable. */
static int duplicate_table(dcp_comm *comm, dcp_comm **out, dcp_error *err) {
    dcp_comm *made =
        comm_create(&comm->ops, NULL, comm_watch_share(comm->watch), comm->rank, comm->size);
    int status = comm_agree(comm, made ? DCP_OK : core_fail_memory(err, sizeof *made), err);
    if (status == DCP_OK) {
        made->duplicate = duplicate_table;
        made->location = comm->location;
        made->table_host = comm->table_host;
        made->hosts = comm_groups_share(comm->hosts);
        status = comm_agree(comm, query_table(comm, made, err), err);
    }
    if (status == DCP_OK)
        *out = made;
    else
        dcp_comm_destroy(made);
    return status;
}

/* hosts[r] becomes the lowest rank on rank r's host, according to this rank's table. */
static int read_hosts(const dcp_comm *comm, uint64_t *hosts, dcp_error *err) {
    int *numbers = core_array((size_t)comm->size, sizeof *numbers);
    int status = numbers ? DCP_OK : core_fail_memory(err, (size_t)comm->size * sizeof *numbers);
    for (int r = 0; r < comm->size && !status; r++) {
        numbers[r] = comm->ops.host_of(comm->ctx, r);
        if (numbers[r] < 0)
            status = core_fail(err, DCP_ERR_COMM,
                               "dcp_comm_from_ops: host_of of rank %d failed with code %d", r,
                               numbers[r]);
        for (hosts[r] = 0; !status && numbers[hosts[r]] != numbers[r];) hosts[r]++;
    }
    free(numbers);
    return status;
}

static int compare_hosts(const uint64_t *own, const uint64_t *first, int n, dcp_error *err) {
    for (int r = 0; r < n; r++) {
        if (own[r] == first[r]) continue;
        const bool share_here = own[r] < first[r];
        return core_fail(err, DCP_ERR_MISMATCH,
                         "dcp_comm_from_ops: ranks %d and %d are on %s according to this rank's "
                         "host_of, but on %s according to rank 0's: host_of must report the same "
                         "hosts on all ranks",
                         (int)(share_here ? own[r] : first[r]), r,
                         share_here ? "one host" : "two hosts", share_here ? "two" : "one");
    }
    return DCP_OK;
}

/* Collective: checks that all ranks' tables report the same hosts as rank 0's table; `first` is
 * scratch memory. The error lists the ranks whose tables report others. */
static int agree_on_hosts(dcp_comm *comm, const uint64_t *own, uint64_t *first, dcp_error *err) {
    const size_t n = (size_t)comm->size;
    if (comm->rank == 0) memcpy(first, own, n * sizeof *first);
    int status = comm_broadcast(comm, first, n * sizeof *first, 0, err);
    if (status) return status;
    const int own_status = compare_hosts(own, first, comm->size, err);
    memset(first, 0, n * sizeof *first);
    first[comm->rank] = own_status != DCP_OK;
    status = comm_allreduce(comm, first, n, DCP_REDUCE_MAX, err);
    if (status) return status;
    for (int r = 0; r < comm->size; r++)
        if (first[r]) core_fail_rank(own_status, r, err);
    return comm_agree(comm, own_status, err);
}

/* Collective: reads the hosts from the table, and sets this rank's location. */
static int read_location(dcp_comm *comm, dcp_error *err) {
    const size_t bytes = (size_t)comm->size * sizeof(uint64_t);
    uint64_t *own = malloc(bytes), *first = malloc(bytes);
    int status = own && first ? read_hosts(comm, own, err) : core_fail_memory(err, bytes);
    status = comm_agree(comm, status, err);
    if (!status) status = agree_on_hosts(comm, own, first, err);
    if (!status) comm->table_host = (int)own[comm->rank];
    if (!status) comm_find_location(comm);
    free(own);
    free(first);
    return status;
}

static int check_table(const dcp_comm_ops *ops, dcp_error *err) {
    if (!ops->broadcast || !ops->allreduce || !ops->gather || !ops->alltoall || !ops->barrier)
        return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_ops: all five functions are required");
    if (!ops->duplicate == !ops->free) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "dcp_comm_from_ops: the table has %s but no %s: give both, or neither",
                     ops->duplicate ? "duplicate" : "free", ops->duplicate ? "free" : "duplicate");
}

int dcp_comm_from_ops(const dcp_comm_ops *ops, void *ctx, int rank, int size, dcp_comm **out,
                      dcp_error *err) {
    if (!ops || !out) return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_ops: ops or out is NULL");
    dcp_comm_ops own;
    int status = core_sized_copy_in(&own, sizeof own, ops, "DCP_COMM_OPS_INIT", err);
    if (!status) status = check_table(&own, err);
    if (status) return status;
    if (size < 1 || rank < 0 || rank >= size)
        return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_ops: rank %d of %d ranks does not exist",
                         rank, size);
    comm_watch *watch = comm_watch_create(rank, size);
    dcp_comm *comm = watch ? comm_create(&own, ctx, watch, rank, size) : NULL;
    if (!comm) return core_fail_memory(err, sizeof *comm);
    if (own.duplicate && own.threads) comm->duplicate = duplicate_table;
    if (own.host_of && size > 1) status = read_location(comm, err);
    if (status == DCP_OK)
        *out = comm;
    else
        dcp_comm_destroy(comm);
    return status;
}
