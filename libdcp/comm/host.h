/* Collectives of ranks on one host, who may be a part of a communicator, through memory that they
 * share. A rank that waits sleeps until the rank that it waits for has come. MPI would ask again
 * and again, which costs a core: beside a thread that computes, or where there are more ranks than
 * cores. */
#pragma once

#include <mpi.h>
#include <stddef.h>

#include "comm/comm.h"
#include "comm/pairs.h"
#include "core/futex.h"

typedef struct comm_host {
    unsigned char *memory;         /* of the host's ranks, side by side */
    core_futex **rounds;           /* of each, in shared memory: what it has published last */
    uint64_t *begins;              /* of the message to this rank, in what each rank sends */
    _Atomic comm_failure *failure; /* in shared memory, where all ranks are on the host; or NULL */
    comm_shared shared;            /* in use where all ranks are on the host */
    size_t slot_bytes;
    uint32_t round; /* that this rank has published last */
    int rank, size; /* of the host */
    int *ranks;     /* their numbers in the communicator */
} comm_host;

/* The context of a communicator over MPI, through shared memory or by messages. */
typedef struct comm_mpi {
    comm_pairs pairs;    /* first, as comm_pairs_ops wants it */
    MPI_Comm made;       /* the same communicator, while MPI makes it */
    comm_batch messages; /* under way, see comm/messages.h */
    void *gathered;      /* memory that MPI fills while the ranks introduce themselves */
    struct comm_mpi *next;
    comm_host host;
    comm_pairs between;        /* of the first ranks of the groups, for comm/levels.h */
    const comm_groups *groups; /* that of comm->local */
    int *first;                /* [group]: its first rank */
} comm_mpi;

/* Collectives of the ranks of a host, for a comm_mpi that has joined it; ranks and roots are
 * numbers in the host. They fail once the watch is broken. */
extern const dcp_comm_ops comm_host_ops;
