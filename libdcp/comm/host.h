/* Shared memory of the ranks on one host, the collectives that they run through it, and
 * collectives on several hosts that begin with it. */
#pragma once

#include <mpi.h>
#include <stddef.h>

#include "comm/comm.h"
#include "comm/pairs.h"
#include "core/system.h"

/* Memory that the ranks of one host share. Public: dcp_host_memory_create. */

/* A file that exists in memory alone, as processes of its maker's user and PID namespace find it.
 * fd -1: none. */
typedef struct comm_memory_file {
    int64_t pid, fd;
    uint64_t device, inode;
} comm_memory_file;

/* Makes one of zeros. Returns its descriptor, which has to stay open until all others have opened
 * it; -1: it can't be had, and file->fd stays as it was. */
int comm_memory_file_make(size_t bytes, comm_memory_file *file);
/* Another process's. Returns a descriptor; -1: it can't be opened. */
int comm_memory_file_open(const comm_memory_file *file);
/* Of an open one; to be freed with dcp_host_memory_free, the descriptor may be closed before. NULL:
 * it failed. */
void *comm_memory_file_map(int fd, size_t bytes);

/* Collective: dcp_host_memory_create for the ranks of `comm`. *out stays NULL, on all ranks, where
 * it cannot be had, which is no failure. */
int comm_host_memory_create(dcp_comm *comm, size_t bytes, void **out, dcp_error *err);

/* Collectives of ranks on one host, who may be a part of a communicator, through memory that they
 * share. A rank that waits sleeps until the rank that it waits for has come. MPI would ask again
 * and again, which costs a core: beside a thread that computes, or where there are more ranks than
 * cores. */

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
    comm_pairs between;        /* of the first ranks of the groups, for comm/host.h */
    const comm_groups *groups; /* that of comm->local */
    int *first;                /* [group]: its first rank */
} comm_mpi;

/* Collectives of the ranks of a host, for a comm_mpi that has joined it; ranks and roots are
 * numbers in the host. They fail once the watch is broken. */
extern const dcp_comm_ops comm_host_ops;

/* Collectives of ranks on several hosts: first in the memory of each host, then by messages between
 * the hosts' first ranks, and back. Fewer messages go between hosts, and fewer rounds. */

/* Of a comm_mpi whose ranks share memory in groups. All-to-alls, and gathers of more than 4 KiB a
 * rank, are messages between all. */
extern const dcp_comm_ops comm_levels_ops;

/* Makes the messages between the first ranks of the groups ready. -1: memory is short. */
int comm_levels_make(comm_mpi *ctx, const comm_groups *groups);
