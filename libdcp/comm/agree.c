/* The agreement on one status: the lowest rank that failed speaks for all. The message travels only
 * where some rank failed, which all ranks know from the same all-reduce. */
#include <limits.h>

#include "comm/comm.h"
#include "core/fail.h"

/* What this rank tells the others; callers that pass no error still say what kind it was. */
static dcp_error own_failure(const dcp_comm *comm, int status, const dcp_error *err) {
    dcp_error failure = {0};
    int filled = err && err->status == status;
    int agreed_before = filled && err->rank >= 0;
    const char *message = filled ? err->message : dcp_status_text(status);
    if (comm->size > 1 && !agreed_before)
        core_fail(&failure, status, "rank %d: %s", comm->rank, message);
    else
        core_fail(&failure, status, "%s", message);
    failure.rank = agreed_before ? err->rank : comm->rank;
    return failure;
}

int comm_agree(dcp_comm *comm, int status, dcp_error *err) {
    uint64_t first_failed = status == DCP_OK ? INT_MAX : (uint64_t)comm->rank;
    int comm_status = comm_allreduce(comm, &first_failed, 1, DCP_REDUCE_MIN, err);
    if (comm_status != DCP_OK) return comm_status;
    if (first_failed == INT_MAX) return DCP_OK;

    dcp_error failure = {0};
    if (first_failed == (uint64_t)comm->rank) failure = own_failure(comm, status, err);
    comm_status = comm_broadcast(comm, &failure, sizeof failure, (int)first_failed, err);
    if (comm_status != DCP_OK) return comm_status;
    if (err) *err = failure;
    return failure.status;
}
