/* A communicator: its collectives, the agreement on one status, the ranks of each host, and the
 * cancellation of an operation that all ranks work on. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "comm/process.h"
#include "dcp/comm.h"

/* A sharing group: the ranks of a communicator that share memory with this rank, and this rank
 * itself. Over MPI these are the ranks of this rank's host, even if the communicator spans several
 * hosts. If nothing is shared (a caller's table, DCP_SHARED_MEMORY=0, one rank), each rank is a
 * group of its own, and its areas are private memory. comm/sharing.h has the operations of a
 * group. */

/* Memory that all ranks of a group see. Each page (PAGE_BYTES) of an area has a mark, initially 0.
 * Users separate their accesses by barriers. When users are done, they set all marks back to 0. An
 * area's contents are not preserved for the next user. */
typedef struct comm_areas {
    size_t n;
    const size_t *bytes;  /* the size of each area, in whole pages */
    unsigned char **data; /* page-aligned */
    _Atomic uint16_t **marks;
    void *memory;
    size_t memory_bytes;
    void *lists;
} comm_areas;

/* Frees the areas and leaves an empty set. */
void comm_areas_free(comm_areas *areas);

/* Returns the mark of a page of an area, and sets it to 0. A barrier must separate this call from
 * other ranks' use of the mark. */
static inline uint16_t comm_areas_take_mark(const comm_areas *areas, size_t area, size_t page) {
    _Atomic uint16_t *at = &areas->marks[area][page];
    const uint16_t mark = atomic_load_explicit(at, memory_order_relaxed);
    if (mark) atomic_store_explicit(at, 0, memory_order_relaxed);
    return mark;
}

typedef struct comm_local {
    const comm_groups *groups; /* the sharing groups of all ranks; groups->own is this rank's */
    int rank, size;            /* this rank's number in its group; how many ranks the group has */
    const int *ranks;          /* [size]: the group's ranks in the communicator, ascending */
    /* The rest is private. */
    comm_groups *shared, *alone;    /* `groups` is one of them; shared: NULL if nothing is shared */
    const struct dcp_comm_ops *ops; /* the group's collectives; NULL: it has one rank */
    void *ctx;
    int own; /* this rank's number in the communicator */
    comm_areas areas;
} comm_local;

/* Makes the group of `groups` that contains this rank its sharing group, and frees the areas of its
 * old group. Takes ownership of `groups`. If `groups` is NULL, the rank is alone in its group
 * again. */
void comm_local_set(comm_local *local, comm_groups *groups, const struct dcp_comm_ops *ops,
                    void *ctx);

/* The rule of collectives: never return between two of them because of a local failure, or the
 * other ranks would wait for ever. Do the local work, pass its status to comm_agree, and continue
 * only if that returns DCP_OK. A collective that itself fails returns DCP_ERR_COMM; then all
 * collectives of the communicator and of its duplicates fail at once, and name the same rank. */

/* Memory that all ranks of a communicator see, if all are on one host. */
typedef struct comm_shared {
    _Atomic uint64_t *stopped; /* number of the operation cancelled last << 32 | the rank that
                                  cancelled it */
} comm_shared;

/* Buffers for messages over a caller's table without `exchange`. */
typedef struct comm_packing {
    uint64_t *bytes;               /* [2 * ranks]: bytes to each rank, then bytes from each rank */
    unsigned char *send, *receive; /* the messages in rank order, without gaps */
    uint64_t most_out, most_in;
} comm_packing;

struct dcp_comm {
    dcp_comm_ops ops;
    void *ctx;
    void (*destroy_ctx)(struct dcp_comm *comm); /* NULL: the context is the caller's */
    /* Collective: makes a communicator with the same ranks, which another thread may use at the
     * same time, and which sleeps while it waits. NULL: this rank cannot make one. Called only by
     * comm_duplicate, and only if all ranks have this function. */
    int (*duplicate)(struct dcp_comm *comm, struct dcp_comm **out, dcp_error *err);
    /* Collective: called when the ranks' locations have changed; NULL: nothing depends on the
     * locations. */
    int (*update_location)(struct dcp_comm *comm, dcp_error *err);
    struct comm_mpi *mpi;      /* the context of a communicator over MPI (comm/host.h); else NULL */
    comm_watch *watch;         /* watches the ranks, shared with duplicates; NULL: one rank */
    const comm_shared *shared; /* NULL: the ranks share nothing */
    comm_local local;          /* the ranks that share memory with this one */
    comm_groups *hosts;        /* the ranks of each host; NULL: not known yet, see comm_hosts */
    comm_location location;    /* where this rank is: ranks with equal locations are on one host */
    int table_host; /* the lowest rank of this rank's host, as a caller's table reports it; -1:
                       unknown */
    int rank, size;
    pid_t process;          /* the process that made the communicator */
    comm_packing packing;   /* see comm/messages.h */
    uint32_t operations;    /* cancellable operations begun so far: see comm_stop */
    int (*stop)(void *ctx); /* given to dcp_comm_set_stop; NULL: none, as in duplicates */
    void *stop_ctx;
    uint64_t *numbers; /* room for two numbers per rank */
    uint64_t eights[]; /* the number 8 for each rank: the sizes of an all-to-all of one u64 per
                          rank */
};

/* Makes a communicator over a copy of `ops`; returns NULL if memory is short. Takes ownership of
 * `watch` in either case. The communicator can't be duplicated unless the caller sets `duplicate`.
 * With one rank, `ops` and `watch` are not used and may be NULL. */
dcp_comm *comm_create(const dcp_comm_ops *ops, void *ctx, comm_watch *watch, int rank, int size);

/* Sets this rank's location to the host that the caller's table reports (host_of). If it reports
 * none, calls comm_location_find. */
void comm_find_location(dcp_comm *comm);

/* Returns DCP_ERR_COMM for a communicator whose watch is broken; the message names what failed, and
 * which rank caused it. */
int comm_fail_broken(const dcp_comm *comm, const char *what, dcp_error *err);
/* Turns the code that an operation returned into a status. Any code but 0 breaks the communicator,
 * even over a caller's table. */
int comm_check_code(const dcp_comm *comm, const char *what, int code, dcp_error *err);
/* Returns true if the communicator's watch is broken; then collectives must not be called any
 * more. */
bool comm_is_broken(const dcp_comm *comm);

/* Collective: makes a communicator with the same ranks, which a thread of the library may use while
 * the program uses this one. All ranks destroy it with dcp_comm_destroy. If a rank can't have one
 * (MPI's thread level, a caller's table without duplicates), returns DCP_OK, and *out is NULL on
 * all ranks: the work has to be done on the caller's thread. */
int comm_duplicate(dcp_comm *comm, dcp_comm **out, dcp_error *err);

int comm_broadcast(dcp_comm *comm, void *buf, uint64_t bytes, int root, dcp_error *err);
int comm_allreduce(dcp_comm *comm, uint64_t *buf, uint64_t count, dcp_reduce op, dcp_error *err);
int comm_gather(dcp_comm *comm, const void *send, uint64_t bytes, void *recv, int root,
                dcp_error *err);
int comm_alltoall(dcp_comm *comm, const void *send, const uint64_t *send_bytes, void *recv,
                  const uint64_t *recv_bytes, dcp_error *err);
int comm_barrier(dcp_comm *comm, dcp_error *err);

/* Collective: every rank passes its own status and, if that is a failure, the error it filled in.
 * All ranks return the status of the lowest rank that failed, with that rank's message (prefixed
 * "rank R: " if the communicator has several ranks) and err->rank = R. An error that has already
 * been agreed on retains its rank and prefix. Costs one all-reduce of eight bytes if no rank
 * failed. */
int comm_agree(dcp_comm *comm, int status, dcp_error *err);

/* Like comm_agree. If no rank failed, each of the n values also becomes the smallest of all ranks'
 * values, in the same all-reduce. n is at most COMM_MIN_VALUES. comm/vote.h is for values of
 * several kinds. */
#define COMM_MIN_VALUES 64
int comm_agree_min(dcp_comm *comm, int status, uint64_t *values, size_t n, dcp_error *err);

/* Like comm_agree. If no rank failed, words [0, n) also become the XOR of all ranks' words, in the
 * same all-reduce. `words` must have room for COMM_XOR_SCRATCH(ranks) more words after the first n.
 */
#define COMM_XOR_SCRATCH(ranks) (((size_t)(ranks) + 63) / 64)
int comm_agree_xor(dcp_comm *comm, int status, uint64_t *words, size_t n, dcp_error *err);

/* Finds the ranks of each host. Ranks are on one host here if they have the same location
 * (comm/process.h) and run on the same machine, so a rack that was given one name counts as several
 * hosts. Collective the first time, and again after dcp_comm_set_host. *out belongs to the
 * communicator. */
int comm_hosts(dcp_comm *comm, const comm_groups **out, dcp_error *err);

/* Cancelling an operation that all ranks work on. Each rank asks its own caller; the operation is
 * cancelled on all ranks once one caller cancels it. Ranks that share memory learn of it through
 * that memory; all others learn of it from the operation's next agreement at the latest. This needs
 * no additional collective. */

typedef struct comm_stop {
    /* The caller's function, in addition to the communicator's. Returns nonzero to cancel; NULL:
     * none. */
    int (*should_stop)(void *ctx);
    void *ctx;
    const atomic_int *cancelled; /* nonzero: another thread has cancelled the operation; NULL: no
                                    thread can cancel it */
    const char *what, *outcome;  /* for the message: "the save", "nothing is published" */
    const dcp_comm *comm;        /* NULL: the operation is local to this rank */
    uint32_t number;             /* the operation's number, counted per communicator */
    bool stopped;                /* true: the operation was cancelled */
    int rank;                    /* the rank that cancelled the operation */
} comm_stop;

/* Begins (comm_stop_begin) an operation that only the communicator's own function can cancel. Not
 * collective. */
comm_stop comm_stop_of(dcp_comm *comm, const char *what, const char *outcome);

/* Not collective, but all ranks must begin their operations on `comm` in the same order. */
void comm_stop_begin(comm_stop *stop, dcp_comm *comm);

/* Returns DCP_ERR_CANCELLED if this rank's caller cancels the operation, or if another rank is
 * known to have cancelled it. The working thread calls it every few MiB. `stop` may be NULL. */
int comm_stop_poll(comm_stop *stop, dcp_error *err);
/* Returns DCP_ERR_CANCELLED if an earlier comm_stop_poll did. Calls none of the caller's
 * functions. */
int comm_stop_status(const comm_stop *stop, dcp_error *err);
