/* Memory that the ranks of one host share, collectives through that memory, and collectives across
 * hosts, which begin in that memory. */
#pragma once

#include <mpi.h>
#include <stddef.h>

#include "comm/comm.h"
#include "comm/pairs.h"
#include "core/system.h"

/* Memory that the ranks of one host share. The public function is dcp_host_memory_create. */

/* Identifies a file that exists only in memory, so that other processes of the same user and PID
 * namespace can open it. fd -1: no file. */
typedef struct comm_memory_file {
    int64_t pid, fd;
    uint64_t device, inode;
} comm_memory_file;

/* Makes a file of zeros. Returns its descriptor, which must stay open until all others have opened
 * the file. Returns -1 on failure. Set file->fd to -1 before the call: after a failure it is still
 * -1. */
int comm_memory_file_make(size_t bytes, comm_memory_file *file);
/* Opens another process's file. Returns a descriptor, or -1 on failure. */
int comm_memory_file_open(const comm_memory_file *file);
/* Maps an open file; its descriptor may be closed afterwards. Free the memory with
 * dcp_host_memory_free. Returns NULL on failure. */
void *comm_memory_file_map(int fd, size_t bytes);

/* Collective. Like dcp_host_memory_create, for the ranks of `comm`. If the memory can't be made,
 * *out stays NULL on all ranks, which is not a failure. */
int comm_host_memory_create(dcp_comm *comm, size_t bytes, void **out, dcp_error *err);

/* Collectives of the ranks on one host, through memory that they share. The ranks of a host may be
 * only some of a communicator's ranks. A waiting rank sleeps until the awaited rank has arrived.
 * MPI would poll instead, and so take the core from a thread that computes, or from another rank if
 * there are more ranks than cores. */

typedef struct comm_host {
    unsigned char *memory; /* the memory of all ranks of the host, side by side */
    core_futex **rounds; /* [rank], in shared memory: the last round that the rank has published */
    uint64_t *begins;    /* [rank]: where the message to this rank begins in that rank's stream */
    _Atomic comm_failure *failure; /* in shared memory, if all ranks are on the host; else NULL */
    comm_shared shared;            /* used if all ranks are on the host */
    size_t slot_bytes;
    uint32_t round; /* the last round that this rank has published */
    int rank, size; /* this rank's number among the ranks of the host; how many ranks the host
                       has */
    int *ranks;     /* [size]: the ranks' numbers in the communicator */
} comm_host;

/* The context of a communicator over MPI, which uses shared memory or messages. */
typedef struct comm_mpi {
    comm_pairs pairs;    /* must be the first member, as comm_pairs_ops (comm/pairs.h) requires */
    MPI_Comm made;       /* MPI's communicator, while MPI makes it */
    comm_batch messages; /* the messages of an exchange in progress (comm/messages.h) */
    void *gathered;      /* memory that MPI fills while the ranks introduce themselves */
    struct comm_mpi *next;
    comm_host host;
    comm_pairs between;        /* for comm_levels_ops: connects the first ranks of the groups */
    const comm_groups *groups; /* the `groups` of comm->local (comm/comm.h) */
    int *first;                /* [group]: the group's first rank */
} comm_mpi;

/* Collectives of the ranks of a host, for a comm_mpi that has joined it. Ranks and roots are given
 * by their numbers in the host. The functions fail once the watch is broken. */
extern const dcp_comm_ops comm_host_ops;

/* Collectives of ranks on several hosts: first in the memory of each host, then by messages between
 * the hosts' first ranks, and back. Between hosts, this takes fewer messages and fewer rounds than
 * messages between all ranks. */

/* For a comm_mpi whose ranks share memory in groups. All-to-alls, and gathers of more than 4 KiB
 * per rank, use messages between all ranks. */
extern const dcp_comm_ops comm_levels_ops;

/* Prepares the messages between the first ranks of the groups. Returns -1 if memory is short. */
int comm_levels_make(comm_mpi *ctx, const comm_groups *groups);
