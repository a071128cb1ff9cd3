/* An allreduce for callers' tables of functions. MPICH 4.0.2 treats MPI_UINT64_T as signed in
 * minima and maxima, so these use signed numbers with the same order. */
#ifndef TESTS_SUPPORT_UNSIGNED_ALLREDUCE_H
#define TESTS_SUPPORT_UNSIGNED_ALLREDUCE_H

#include <mpi.h>
#include <stdint.h>

#include <dcp/comm.h>

static inline int unsigned_allreduce(uint64_t *buf, uint64_t count, dcp_reduce op, MPI_Comm comm) {
    const uint64_t flip = (uint64_t)1 << 63;
    if (op == DCP_REDUCE_SUM || op == DCP_REDUCE_XOR)
        return MPI_Allreduce(MPI_IN_PLACE, buf, (int)count, MPI_UINT64_T,
                             op == DCP_REDUCE_SUM ? MPI_SUM : MPI_BXOR, comm);
    for (uint64_t i = 0; i < count; i++) buf[i] ^= flip;
    const int code = MPI_Allreduce(MPI_IN_PLACE, buf, (int)count, MPI_INT64_T,
                                   op == DCP_REDUCE_MAX ? MPI_MAX : MPI_MIN, comm);
    for (uint64_t i = 0; i < count; i++) buf[i] ^= flip;
    return code;
}

#endif
