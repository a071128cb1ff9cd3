/* The library's comm_agree does the same on its own communicator. This one is over MPI, because
 * ranks that wait in MPI move on the gathers and reductions of training that are under way, and
 * because it leaves the rank out of a message that all ranks have.
 *
 * It costs one all-reduce where nothing failed. */
#include "ranks/agree.h"

#include <limits.h>

#include "programs/fail.h"

int ranks_agree(MPI_Comm comm, int status, dcp_error *err) {
    int rank, world;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    /* the lowest rank that failed; -1 where one did not fail */
    int found[2] = {status ? rank : INT_MAX, status ? 0 : -1};
    MPI_Allreduce(MPI_IN_PLACE, found, 2, MPI_INT, MPI_MIN, comm);
    if (found[0] == INT_MAX) return DCP_OK;
    dcp_error first = *err;
    first.status = status;
    MPI_Bcast(&first, (int)sizeof first, MPI_BYTE, found[0], comm);
    if (found[1] == 0)
        core_fail_again(err, first.status, &first, "%s", first.message);
    else
        core_fail_again(err, first.status, &first, "rank %d: %s", found[0], first.message);
    err->rank = found[0];
    return first.status;
}
