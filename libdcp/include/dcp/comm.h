/* Communicators: the ranks that save and load together. A communicator is made from MPI
 * (dcp/mpi.h), from a table of functions in programs without MPI, or for one rank alone. */
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
    void *data;     /* the bytes to send, or the memory to receive into */
    uint64_t bytes; /* equal on sender and receiver; 0: the message need not be sent */
    int peer;       /* the other rank, which receives or sends it; never this rank */
} dcp_comm_message;

/* The communication functions of a launcher without MPI. The first five are required; later members
 * may be 0. All ranks must provide the same functions. The first five are collective. They return 0
 * on success and any other value on failure, which becomes DCP_ERR_COMM. After a failure, the
 * library calls only `free`, for this context and for all duplicates. Unless `threads` is set, the
 * library calls the functions only within the program's own calls of libdcp. */
typedef struct dcp_comm_ops {
    size_t size; /* dcp/size.h */
    /* Copies buf[bytes] of `root` to all ranks. */
    int (*broadcast)(void *ctx, void *buf, uint64_t bytes, int root);
    /* Replaces buf[count] on every rank by the element-wise reduction over all ranks. */
    int (*allreduce)(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op);
    /* Copies send[bytes] of each rank to recv[rank * bytes] on `root`; recv is NULL on other
     * ranks. */
    int (*gather)(void *ctx, const void *send, uint64_t bytes, void *recv, int root);
    /* Exchanges data between all ranks: send holds send_bytes[r] bytes for each rank r, in rank
     * order without gaps; recv is laid out likewise, with recv_bytes. */
    int (*alltoall)(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                    const uint64_t *recv_bytes);
    int (*barrier)(void *ctx);
    /* Collective. Sets *out_ctx to a context for the same ranks with messages of its own, which
     * never match those of `ctx`. The library calls it only within the program's own calls of
     * libdcp, even if `ctx` is itself a duplicate. Requires `free`. If it fails on one rank, the
     * other ranks free their new contexts, and the call that needed the duplicate
     * returns DCP_ERR_COMM; `ctx` remains usable. */
    int (*duplicate)(void *ctx, void **out_ctx);
    /* Frees a context made by `duplicate`; called once for each. It must not wait for other ranks,
     * since they might not call it at that time, or might be gone. */
    void (*free)(void *ctx);
    /* 1: several threads may call the functions at the same time, each with a different context. A
     * context is used by one thread at a time, but not always by the same one. If `threads` is 1
     * and `duplicate` is given, threads of the library save, fill stores (dcp/tiers.h) and load in
     * the background. */
    int threads;
    /* Returns a number for the host that `rank` is on, equal for ranks on the same host, or less
     * than 0 on failure. dcp_comm_from_ops calls it for every rank, and is collective if this
     * function is set. The number takes precedence over DCP_HOST and over the host that this rank
     * would determine itself; dcp_comm_set_host takes precedence over this function. */
    int (*host_of)(void *ctx, int rank);
    /* Sends `sends` messages, receives `receives` messages, and returns once all are done; its
     * result has the same meaning as for the first five. Not collective: it waits only for the
     * peers in its lists, each of which calls it as well and lists the same message with the same
     * size. Both lists are sorted by peer and contain each peer at most once. A rank may send to
     * some ranks and receive from others in one call, so the function must start all messages
     * before it waits for any. Between two ranks, messages match in the order of the calls. They
     * never match messages of the first five functions, and the order of calls of this function and
     * of those five may differ between ranks. Without this function, such messages go through
     * alltoall, which every rank has to call even if only a few ranks have something to send. */
    int (*exchange)(void *ctx, const dcp_comm_message *send, uint64_t sends,
                    const dcp_comm_message *receive, uint64_t receives);
} dcp_comm_ops;
#define DCP_COMM_OPS_INIT DCP_SIZED(dcp_comm_ops)

/* Makes a communicator of one rank; needs no launcher. */
DCP_API int dcp_comm_self(dcp_comm **out, dcp_error *err);

/* Makes a communicator of `size` ranks from the caller's functions. Collective only if ops->host_of
 * is set and `size` is more than 1. `ops` is copied; `ctx` is borrowed until the communicator is
 * destroyed. With one rank, none of the functions is called.
 * DCP_ERR_ARG: one of the first five functions is missing, `duplicate` or `free` is given without
 * the other, or `rank` does not exist.
 * DCP_ERR_COMM: host_of failed.
 * DCP_ERR_MISMATCH: host_of gives different ranks different answers; the error names two ranks. */
DCP_API int dcp_comm_from_ops(const dcp_comm_ops *ops, void *ctx, int rank, int size,
                              dcp_comm **out, dcp_error *err);

/* Return this rank's number, from 0, and the number of ranks. DCP_ERR_ARG (less than 0): NULL. */
DCP_API int dcp_comm_rank(const dcp_comm *comm);
DCP_API int dcp_comm_size(const dcp_comm *comm);

/* Sets the host that this rank is on. Collective. Ranks on one host are lost together, and share
 * memory if they can; ranks on different hosts share no memory. Ranks with equal names count as
 * being on one host, whichever machines they run on. So a name may also stand for a rack or a pod
 * whose ranks are lost together.
 *
 *   name  the host's name. NULL: as if this function had never been called.
 *
 * Without a name, the caller's table determines the host (dcp_comm_ops.host_of); without that
 * function, DCP_HOST in the environment does. If that is not set either, ranks that share a kernel
 * (boot id) and a /dev/shm (device number) are on one host. Call this function before anything is
 * made on the communicator: existing objects keep the earlier hosts.
 * DCP_ERR_COMM: a rank is gone. */
DCP_API int dcp_comm_set_host(dcp_comm *comm, const char *name, dcp_error *err);

/* Counts the hosts that the ranks are on. Collective. *hosts is their number; *own is the number of
 * this rank's host, from 0, in the order of the hosts' lowest ranks. Either may be NULL. */
DCP_API int dcp_comm_hosts(dcp_comm *comm, int *hosts, int *own, dcp_error *err);

/* Sets how long a rank of a communicator over MPI waits for other ranks in a collective.
 * Collective.
 *
 *   seconds  the longest time that the rank waits without completing a message with another rank; a
 *            message has at most 64 MiB. The largest value that any rank passes applies, to
 *            duplicates as well. 0: no limit, since a step can take arbitrarily long.
 *
 * The default is DCP_COMM_LIMIT in the environment, or else 0. A rank whose process can be looked
 * up (same kernel, same PID and time namespaces) needs no limit: once it has ended, the other ranks
 * return DCP_ERR_COMM within two seconds. A limit is for ranks on other machines and for ranks that
 * hang: after the limit, and one more second in which the ranks find out which rank is late, they
 * return DCP_ERR_COMM as well. This function does not affect a caller's table (dcp_comm_from_ops),
 * which has its own timeouts.
 * DCP_ERR_ARG: less than 0, or 1e9 or more. */
DCP_API int dcp_comm_set_limit(dcp_comm *comm, double seconds, dcp_error *err);

/* Sets a function that can cancel calls on this communicator. Not collective; applies to this rank
 * alone. Long-running functions of the library call `stop` now and then, on the calling thread. If
 * it returns a value other than 0 on one rank, all ranks give up with DCP_ERR_CANCELLED. Some
 * functions without a `stop` option call it as well: those that open a checkpoint; those that
 * rebuild (dcp_store_rebuild, dcp_tiers_load); and dcp_save_async before it returns, while it lays
 * out the files and copies. If the save has started by then, it is cancelled, and dcp_save_wait
 * returns the status. Threads of the library do not call `stop`. NULL: no function. */
DCP_API void dcp_comm_set_stop(dcp_comm *comm, int (*stop)(void *ctx), void *ctx);

/* Frees the communicator (and, over MPI, the duplicate that it uses). NULL is ignored. Destroy the
 * objects made on it first. If a rank is gone, nothing is called that would wait for it: the
 * duplicate is not freed, nor is memory that MPI may still use. In a process forked from the rank,
 * it frees only that process's copy, and calls neither MPI nor the functions of a table. */
DCP_API void dcp_comm_destroy(dcp_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
