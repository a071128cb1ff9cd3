/* Ranks of one host: their collectives go through memory that they share, and who waits sleeps
 * until the one it waits for has come. So ranks that wait cost nothing, where MPI asks over and
 * over: beside a thread that computes, and where there are more ranks than cores. */
#ifndef DCP_COMM_HOST_H
#define DCP_COMM_HOST_H

#include <mpi.h>
#include <stddef.h>

#include "comm/comm.h"
#include "core/futex.h"

typedef struct comm_host {
    unsigned char *memory; /* of all ranks, side by side */
    core_futex **rounds;   /* of each rank, in shared memory: what it has published last */
    uint64_t *begins;      /* of the message to this rank, in what each rank sends */
    comm_shared shared;
    size_t slot_bytes;
    uint32_t round; /* that this rank has published last */
    int rank, size;
} comm_host;

/* The context of a communicator over MPI; of either kind. */
typedef struct comm_mpi {
    MPI_Comm comm;
    int yields; /* it may wait beside a thread that computes: whoever waits leaves that the core */
    comm_host host;
} comm_mpi;

/* Their context: a comm_mpi whose host was joined. They cannot fail. */
extern const dcp_comm_ops comm_host_ops;

/* Collective over ctx->comm: returns 1 where all of its ranks now share memory, or 0 on all. */
int comm_host_join(comm_mpi *ctx);

/* After a comm_host_join that returned 0 as well. */
void comm_host_leave(comm_mpi *ctx);

#endif
