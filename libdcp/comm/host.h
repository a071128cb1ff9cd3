/* Collectives of ranks on one host, through memory that they share. A rank that waits sleeps until
 * the rank that it waits for has come. MPI would ask again and again, which costs a core: beside a
 * thread that computes, or where there are more ranks than cores. */
#pragma once

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

/* The context of a communicator over MPI, through shared memory or by messages. */
typedef struct comm_mpi {
    MPI_Comm comm;
    int yields; /* it works beside a thread that computes: while it waits, it leaves the core to
                   that */
    comm_host host;
} comm_mpi;

/* Collectives of a comm_mpi that has joined its host. They cannot fail. */
extern const dcp_comm_ops comm_host_ops;

/* Collective over ctx->comm: returns 1 where all of its ranks now share memory, or 0 on all. */
int comm_host_join(comm_mpi *ctx);

/* After a comm_host_join that returned 0 as well. */
void comm_host_leave(comm_mpi *ctx);
