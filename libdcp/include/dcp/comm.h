/* Communicators: the ranks that save and load together. From MPI (dcp/mpi.h), from a table of
 * functions for programs without MPI, or one rank alone. */
#ifndef DCP_COMM_H
#define DCP_COMM_H

#include <stdint.h>

#include "dcp/error.h"
#include "dcp/size.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_comm dcp_comm;

typedef enum dcp_reduce {
    DCP_REDUCE_MAX,
    DCP_REDUCE_MIN,
    DCP_REDUCE_SUM,
    DCP_REDUCE_XOR
} dcp_reduce;

/* A message of dcp_comm_ops.exchange. */
typedef struct dcp_comm_message {
    void *data;     /* sent from, or received into */
    uint64_t bytes; /* the same at both its ends; 0: it need not travel */
    int peer;       /* the rank it goes to, or comes from: never this one */
} dcp_comm_message;

/* What a launcher without MPI provides. Five functions are required; the members after them may be
 * left 0. All ranks have the same ones. The five are collective, and return 0 or, on failure,
 * anything else, which becomes DCP_ERR_COMM: nothing but `free` is called from then on, for
 * duplicates as well. Without `threads`, all are called where the program calls libdcp. */
typedef struct dcp_comm_ops {
    size_t size; /* dcp/size.h */
    /* buf[bytes] of `root` to all ranks. */
    int (*broadcast)(void *ctx, void *buf, uint64_t bytes, int root);
    /* buf[count] becomes the element-wise reduction over ranks, on every rank. */
    int (*allreduce)(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op);
    /* send[bytes] of each rank to recv[rank * bytes] on `root`; recv is NULL elsewhere. */
    int (*gather)(void *ctx, const void *send, uint64_t bytes, void *recv, int root);
    /* send holds send_bytes[r] bytes for each rank r, in rank order without gaps; recv likewise. */
    int (*alltoall)(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                    const uint64_t *recv_bytes);
    int (*barrier)(void *ctx);
    /* Collective: *out_ctx becomes a context for the same ranks with messages of its own, which
     * never meet those of `ctx`. Called where the program calls libdcp, for duplicates as well.
     * Needs `free`. Where it fails on one rank, the others give theirs back, and what wanted it
     * returns DCP_ERR_COMM; `ctx` can be used as before. */
    int (*duplicate)(void *ctx, void **out_ctx);
    /* Ends a context that `duplicate` gave; called once for each. It must not wait for other ranks,
     * which may not call it at that time, or be gone. */
    void (*free)(void *ctx);
    /* 1: the functions may be called from several threads at the same time, by one thread at a time
     * for each context, not always the same one. With that and `duplicate`, threads of the library
     * save, fill stores (dcp/tiers.h) and load beside the program. */
    int threads;
    /* A number of the host that the rank is on, the same for ranks that share one; less than 0:
     * failure. Asked for every rank, in dcp_comm_from_ops, which is collective where there is such
     * a function. It counts for more than DCP_HOST and what this rank would find by itself, and
     * for less than dcp_comm_set_host. */
    int (*host_of)(void *ctx, int rank);
    /* Sends `sends` messages and receives `receives` others, and returns once all are done. Not
     * collective: it waits for the peers in its lists alone, each of which calls it as well and
     * lists the same message, of the same size. Both lists are sorted by peer and have each peer
     * once at most. A rank may send to many and receive from others in one call, so all are to be
     * begun before it waits for any. Between two ranks, messages meet in the order of the calls.
     * Its messages never meet those of the five, whose calls need not be in the same order with it
     * on all ranks. Returns as the five do. Without it, they go by alltoall, which costs all ranks
     * a call where few have something to say. */
    int (*exchange)(void *ctx, const dcp_comm_message *send, uint64_t sends,
                    const dcp_comm_message *receive, uint64_t receives);
} dcp_comm_ops;
#define DCP_COMM_OPS_INIT DCP_SIZED(dcp_comm_ops)

/* A communicator of one rank; needs no launcher. */
DCP_API int dcp_comm_self(dcp_comm **out, dcp_error *err);

/* A communicator of `size` ranks over the caller's functions. `ops` is copied; `ctx` is borrowed
 * until the communicator is destroyed. With one rank none of them is called. Without host_of not
 * collective. DCP_ERR_ARG: one of the five is missing, or duplicate or free without the other; no
 * such rank. Of host_of: DCP_ERR_COMM, it failed; DCP_ERR_MISMATCH, it does not tell all ranks the
 * same, and the error names two ranks. */
DCP_API int dcp_comm_from_ops(const dcp_comm_ops *ops, void *ctx, int rank, int size,
                              dcp_comm **out, dcp_error *err);

DCP_API int dcp_comm_rank(const dcp_comm *comm);
DCP_API int dcp_comm_size(const dcp_comm *comm);

/* Collective: says which host this rank is on. Ranks on one host are lost together, and share
 * memory where they can; those on different hosts share none. A host is otherwise what the caller's
 * table says (dcp_comm_ops.host_of); or, without that, what DCP_HOST in the environment names; or,
 * where that is not set, what shares a kernel (its boot id) and a /dev/shm (its device number). A
 * name is a rack's or a pod's as well, where those are lost together. Ranks with equal names are on
 * one host, whichever machines they run on. NULL: as if this was never called. Call it before
 * anything is made on the communicator: what is keeps to the earlier hosts. DCP_ERR_COMM: a rank is
 * gone. */
DCP_API int dcp_comm_set_host(dcp_comm *comm, const char *name, dcp_error *err);

/* Collective: on how many hosts the ranks are, and the number of this rank's, from 0, in the order
 * of their lowest ranks. Either may be NULL. */
DCP_API int dcp_comm_hosts(dcp_comm *comm, int *hosts, int *own, dcp_error *err);

/* Collective: how long a rank of a communicator over MPI waits for others in a collective, in
 * seconds, while no message of at most 64 MiB between it and another is done; the largest that any
 * rank passes counts, for duplicates as well. 0, the default unless DCP_COMM_LIMIT in the
 * environment says otherwise: for ever, since a step may take any time. A rank whose process can be
 * looked up (same kernel, same PID and time namespaces) needs no limit: once it has ended, the
 * others return DCP_ERR_COMM within two seconds. A limit is for ranks of other machines, and for
 * ranks that hang: after it, and a second in which the ranks find out who is waited for, they
 * return DCP_ERR_COMM as well. How long a caller's table (dcp_comm_from_ops) waits is its own
 * business. DCP_ERR_ARG: less than 0, or 1e9 and more. */
DCP_API int dcp_comm_set_limit(dcp_comm *comm, double seconds, dcp_error *err);

/* Calls over this communicator ask `stop`, on the thread that made them, now and then where they
 * work for long, and give up on all ranks where it returns not 0 on one: DCP_ERR_CANCELLED. So do
 * those that have no option for it, which are the opening of checkpoints, rebuilds
 * (dcp_store_rebuild, dcp_tiers_load), and of dcp_save_async the layout and the copying before it
 * returns; a save that has begun by then is told to give up, and its wait says so. Threads of the
 * library do not ask it. NULL: nobody is asked. Not collective, and of this rank alone. */
DCP_API void dcp_comm_set_stop(dcp_comm *comm, int (*stop)(void *ctx), void *ctx);

/* Frees the communicator (and MPI's duplicate). NULL is ignored. Objects made on it go first. Where
 * a rank is gone, nothing is called that would wait for it: MPI's duplicate stays, and so does what
 * MPI may still use. A process that was forked from the rank frees its copy, and calls neither MPI
 * nor the functions of a table. */
DCP_API void dcp_comm_destroy(dcp_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
