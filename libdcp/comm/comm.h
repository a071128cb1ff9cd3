/* A communicator: collectives as the library uses them, the agreement on one status, which ranks
 * are near this one, and giving up an operation that all ranks work on. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "comm/process.h"
#include "dcp/comm.h"

/* A communicator: collectives as the library uses them, the agreement on one status, and which
 * ranks are near this one. */

/* The ranks of a communicator that share memory with this one: its sharing group. Over MPI that are
 * the ranks of its host, also where the communicator spans several hosts. Where nothing is shared
 * (a caller's table, DCP_SHARED_MEMORY=0, one rank) each rank is a group by itself, and its areas
 * are memory of its own. comm/sharing.h is what they do together. */

/* Memory that all ranks of a group see. Each page (PAGE_BYTES) of an area has a mark, which is 0 at
 * first. Users agree by barriers on who may touch what when. They set all marks back to 0 at their
 * end, and leave nothing in the areas for the next user. */
typedef struct comm_areas {
    size_t n;
    const size_t *bytes;  /* of each area, whole pages */
    unsigned char **data; /* page-aligned */
    _Atomic uint16_t **marks;
    void *memory;
    size_t memory_bytes;
    void *lists;
} comm_areas;

/* They are none then. */
void comm_areas_free(comm_areas *areas);

/* The mark of a page of an area, which becomes 0. A barrier must be between this and other ranks'
 * use of the mark. */
static inline uint16_t comm_areas_take_mark(const comm_areas *areas, size_t area, size_t page) {
    _Atomic uint16_t *at = &areas->marks[area][page];
    const uint16_t mark = atomic_load_explicit(at, memory_order_relaxed);
    if (mark) atomic_store_explicit(at, 0, memory_order_relaxed);
    return mark;
}

typedef struct comm_local {
    const comm_groups *groups; /* the sharing groups of all ranks; own is this one */
    int rank, size;            /* this rank's number in its group; how many it has */
    const int *ranks;          /* [size]: of the group, in the communicator, ascending */
    /* the rest is not for users */
    comm_groups *shared, *alone;    /* of which one is `groups`; shared: NULL where nothing is */
    const struct dcp_comm_ops *ops; /* of the group; NULL: it is one rank */
    void *ctx;
    int own; /* this rank's number in the communicator */
    comm_areas areas;
} comm_local;

/* The group of `groups`, which it takes over, that this rank is in; its areas are new ones. NULL:
 * this rank is alone again. */
void comm_local_set(comm_local *local, comm_groups *groups, const struct dcp_comm_ops *ops,
                    void *ctx);

/* Collectives as the library uses them, and the agreement on one status.
 *
 * The rule of collectives: a local failure never returns between two of them, or the other ranks
 * would wait for ever. Do the local work, pass its status to comm_agree, and go on only if that
 * returns DCP_OK. A collective that fails itself returns DCP_ERR_COMM; from then on all collectives
 * of the communicator and its duplicates do, at once and naming the same rank. */

/* What all ranks of a communicator see, where all are on one host. */
typedef struct comm_shared {
    _Atomic uint64_t *stopped; /* see comm/comm.h */
} comm_shared;

/* Room of messages over a caller's table without `exchange`. */
typedef struct comm_packing {
    uint64_t *bytes;               /* [2 * ranks]: sent and received */
    unsigned char *send, *receive; /* one after the other, in rank order */
    uint64_t most_out, most_in;
} comm_packing;

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
    struct comm_mpi *mpi;      /* its context (comm/host.h); NULL: it is not over MPI */
    comm_watch *watch;         /* of the ranks, shared with duplicates; NULL: there is one rank */
    const comm_shared *shared; /* NULL: they share nothing */
    comm_local local;          /* the ranks that share memory with this one */
    comm_groups *hosts;        /* which ranks are on one; NULL: not known yet, see comm_hosts */
    comm_place place;          /* of this rank: gathered, it tells which ranks are on one host */
    int table_host; /* the lowest rank of its host, as a caller's table says; -1: it says nothing */
    int rank, size;
    pid_t process;          /* that made it */
    comm_packing packing;   /* see comm/messages.h */
    uint32_t operations;    /* that could be given up, so far: see comm/comm.h */
    int (*stop)(void *ctx); /* dcp_comm_set_stop; duplicates have none; NULL: nobody asks */
    void *stop_ctx;
    uint64_t *numbers; /* room for two numbers of each rank */
    uint64_t eights[]; /* 8 for each rank: the sizes of an all-to-all of one u64 */
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
/* What a call that returned `code` comes to: any but 0 breaks the communicator. A table of the
 * caller breaks with its first failure as well. */
int comm_check_code(const dcp_comm *comm, const char *what, int code, dcp_error *err);
/* Whether its watch is broken, so that nothing may be called any more. */
int comm_is_broken(const dcp_comm *comm);

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

/* The same, and where no rank failed each of the n <= COMM_LEAST_VALUES values becomes the least of
 * all ranks' in the same all-reduce. */
#define COMM_LEAST_VALUES 64
int comm_agree_least(dcp_comm *comm, int status, uint64_t *values, size_t n, dcp_error *err);

/* comm_agree, and where no rank failed words [0, n) become the XOR of all ranks' in the same
 * all-reduce. Behind them `words` has room for COMM_XOR_ROOM(ranks) more. */
#define COMM_XOR_ROOM(ranks) (((size_t)(ranks) + 63) / 64)
int comm_agree_xor(dcp_comm *comm, int status, uint64_t *words, size_t n, dcp_error *err);

/* Which ranks are near each other. */

/* Which ranks are on one host: those whose places are the same (comm/process.h), and which run on
 * one machine, though somebody gave a whole rack one name. Collective the first time, and again
 * after dcp_comm_set_host; kept with the communicator, to which *out belongs. */
int comm_hosts(dcp_comm *comm, const comm_groups **out, dcp_error *err);

/* Giving up an operation that all ranks work on: each rank is asked for itself, and one that wants
 * it is enough. Ranks that share memory see it there; all others, at the latest, by the operation's
 * next agreement. It costs no collective. */

typedef struct comm_stop {
    int (*asked)(void *ctx); /* the caller's, beside that of the communicator: not 0 to give up;
                                NULL: there is none */
    void *ctx;
    const atomic_int *cancelled; /* not 0: another thread gave up; NULL: none can */
    const char *what, *outcome;  /* for the message: "the save", "nothing is published" */
    const dcp_comm *comm;        /* NULL: of this rank alone */
    uint32_t number;             /* of the operation, among those of the communicator */
    int stopped;                 /* for good */
    int rank;                    /* that gave up */
} comm_stop;

/* One that nobody but the communicator's own function is asked for. Not collective, but begun as by
 * comm_stop_begin. */
comm_stop comm_stop_of(dcp_comm *comm, const char *what, const char *outcome);

/* Not collective, though all ranks begin their operations on `comm` in the same order. */
void comm_stop_begin(comm_stop *stop, dcp_comm *comm);

/* DCP_ERR_CANCELLED where this rank is to give up, or is seen to have to. By the thread that works,
 * every few MiB. `stop` may be NULL. */
int comm_stop_ask(comm_stop *stop, dcp_error *err);
/* The same without asking: whether it was found before. */
int comm_stop_status(const comm_stop *stop, dcp_error *err);
