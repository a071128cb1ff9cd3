/* Collectives as the library uses them, and the agreement on one status.
 *
 * The rule of collectives: a local failure never returns between two of them, or the other ranks
 * would wait for ever. Do the local work, pass its status to comm_agree, and go on only if that
 * returns DCP_OK. A collective that fails itself returns DCP_ERR_COMM; from then on all collectives
 * of the communicator and its duplicates do, at once and naming the same rank. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "comm/place.h"
#include "comm/watch.h"
#include "dcp/comm.h"

/* Memory that all ranks of a communicator see. Each rank has two areas, page-aligned. Each page
 * (PAGE_BYTES) of an area has a mark, which is 0 at first. Users agree by barriers on who may touch
 * what when. They set all marks back to 0 at their end, and leave nothing in the areas for the next
 * user. */
typedef struct comm_shared {
    _Atomic uint64_t *stopped; /* see comm/stop.h */
    size_t area_bytes;
    unsigned char **areas; /* [2 * rank + which] */
    _Atomic uint16_t **marks;
} comm_shared;

/* The mark of a page of an area, which becomes 0. A barrier must be between this and other ranks'
 * use of the mark. */
static inline uint16_t comm_shared_take_mark(const comm_shared *shared, size_t area, size_t page) {
    _Atomic uint16_t *at = &shared->marks[area][page];
    const uint16_t mark = atomic_load_explicit(at, memory_order_relaxed);
    atomic_store_explicit(at, 0, memory_order_relaxed);
    return mark;
}

struct dcp_comm {
    dcp_comm_ops ops;
    void *ctx;
    void (*destroy_ctx)(struct dcp_comm *comm); /* NULL where the context is the caller's */
    /* Collective: a communicator of the same ranks that another thread may use at the same time,
     * and that sleeps while it waits. NULL: this rank can have no such communicator. Called by
     * comm_duplicate alone, where all ranks can. */
    int (*duplicate)(struct dcp_comm *comm, struct dcp_comm **out, dcp_error *err);
    /* Collective: the ranks' places have changed; NULL: nothing depends on them. */
    int (*follow_place)(struct dcp_comm *comm, dcp_error *err);
    comm_watch *watch;         /* of the ranks, shared with duplicates; NULL: there is one rank */
    const comm_shared *shared; /* NULL: they share nothing */
    comm_place place;          /* of this rank: gathered, it tells which ranks are on one host */
    int table_host; /* the lowest rank of its host, as a caller's table says; -1: it says nothing */
    int rank, size;
    uint32_t operations; /* that could be given up, so far: see comm/stop.h */
    uint64_t eights[];   /* 8 for each rank: the sizes of an all-to-all of one u64 */
};

/* A communicator over `ops`, which it copies; NULL where memory is short. It takes over `watch` in
 * either case. It cannot be duplicated unless the caller sets `duplicate`. With one rank, `ops` is
 * not used and may be NULL, and so may `watch`. */
dcp_comm *comm_create(const dcp_comm_ops *ops, void *ctx, comm_watch *watch, int rank, int size);

/* Puts the rank's place where nobody names one. */
void comm_find_place(dcp_comm *comm);

/* DCP_ERR_COMM for a communicator whose watch is broken: says what failed, and which rank it was.
 */
int comm_fail_broken(const dcp_comm *comm, const char *what, dcp_error *err);

/* Collective: a communicator of the same ranks that a thread of the library may use while the
 * program uses this one, to be destroyed by all ranks with dcp_comm_destroy. Where that is not
 * possible on every rank (MPI's thread level, a caller's table without duplicates), DCP_OK is
 * returned and *out is NULL on all of them: the work has to be done on the caller's thread. */
int comm_duplicate(dcp_comm *comm, dcp_comm **out, dcp_error *err);

int comm_broadcast(dcp_comm *comm, void *buf, uint64_t bytes, int root, dcp_error *err);
int comm_allreduce(dcp_comm *comm, uint64_t *buf, uint64_t count, dcp_reduce op, dcp_error *err);
int comm_gather(dcp_comm *comm, const void *send, uint64_t bytes, void *recv, int root,
                dcp_error *err);
int comm_alltoall(dcp_comm *comm, const void *send, const uint64_t *send_bytes, void *recv,
                  const uint64_t *recv_bytes, dcp_error *err);
int comm_barrier(dcp_comm *comm, dcp_error *err);

/* Collective: every rank passes its own status and, where that is a failure, the error it filled.
 * All ranks return the status of the lowest rank that failed, with that rank's message (prefixed
 * "rank R: " where the communicator has several ranks) and err->rank = R. An error that was agreed
 * on before keeps its rank and prefix. Costs one all-reduce of eight bytes where no rank failed. */
int comm_agree(dcp_comm *comm, int status, dcp_error *err);
