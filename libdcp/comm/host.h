/* Collectives of ranks on one host, through memory that they share. A rank that waits sleeps until
 * the rank that it waits for has come. MPI would ask again and again, which costs a core: beside a
 * thread that computes, or where there are more ranks than cores. */
#pragma once

#include <mpi.h>
#include <stddef.h>

#include "comm/comm.h"
#include "comm/pairs.h"
#include "core/futex.h"

typedef struct comm_host {
    unsigned char *memory;         /* of all ranks, side by side */
    core_futex **rounds;           /* of each rank, in shared memory: what it has published last */
    uint64_t *begins;              /* of the message to this rank, in what each rank sends */
    _Atomic comm_failure *failure; /* of all ranks, in shared memory */
    comm_shared shared;
    size_t slot_bytes;
    uint32_t round; /* that this rank has published last */
    int rank, size;
} comm_host;

/* The context of a communicator over MPI, through shared memory or by messages. */
typedef struct comm_mpi {
    comm_pairs pairs; /* first, as comm_pairs_ops wants it */
    MPI_Comm made;    /* the same communicator, while MPI makes it */
    void *gathered;   /* memory that MPI fills while the ranks introduce themselves */
    struct comm_mpi *next;
    comm_host host;
} comm_mpi;

/* Collectives of a comm_mpi that has joined its host. They fail once the watch is broken. */
extern const dcp_comm_ops comm_host_ops;

/* Collective, over messages: all ranks share memory from then on, and comm->shared is set, unless
 * they are not all where comm->place says, or have no memory to share. */
int comm_host_join(dcp_comm *comm, dcp_error *err);

/* The rank goes back to messages. */
void comm_host_leave(dcp_comm *comm);

/* Collective: the ranks' places have changed, and with that maybe who shares memory. */
int comm_host_follow(dcp_comm *comm, dcp_error *err);
