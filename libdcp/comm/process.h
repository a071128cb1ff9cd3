/* Ranks as processes: which host each is on, whether it still runs, and groups of ranks. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* Ranks as processes: the host of each rank, and whether its process still runs. */

/* Which host a rank is on. Ranks on one host share memory, and are lost together.
 *
 * A host is a kernel that runs (its boot id) and a /dev/shm (its device number), so that containers
 * on one machine are hosts of their own unless they share that. Or it is what somebody names: the
 * caller by dcp_comm_set_host or by its table's host_of, or DCP_HOST in the environment. */

#define COMM_PLACE_BYTES 128

/* Equal, byte for byte, on the ranks of one host. */
typedef struct comm_place {
    char host[COMM_PLACE_BYTES]; /* for people as well: "host n7", "boot 5b1c..., /dev/shm 26" */
} comm_place;

/* The boot's UUID, or where that can't be read the host's name. */
typedef struct comm_boot_id {
    char text[65];
} comm_boot_id;

/* That of the machine, or container, that this process runs on, whatever somebody names it. */
void comm_place_machine(comm_place *out);

/* This process's. */
void comm_place_find(comm_place *out);

/* That of a host which somebody named; a name of any length. */
void comm_place_name(comm_place *out, const char *name);

/* That of a host which a caller's table tells of, by the lowest of its ranks. */
void comm_place_of_rank(comm_place *out, int rank);

int comm_place_is_same(const comm_place *a, const comm_place *b);

/* A rank's process, as other processes can look it up: whether it has ended. */

/* Zeroed: a process that nobody can look up. */
typedef struct comm_process {
    uint64_t kernel;     /* the boot that it runs in */
    uint64_t name_space; /* in which `pid` is its number, and `start` its time; 0: not known */
    uint64_t start;      /* when it began, in the kernel's ticks: a pid may be used again */
    int64_t pid;
} comm_process;

/* This process. */
void comm_process_find(comm_process *out);

/* Whether `own`, this process, can tell if `other` has ended: they are under one kernel, and in one
 * PID namespace and time namespace. */
int comm_process_can_tell(const comm_process *own, const comm_process *other);

/* Whether `other` has ended, for which it need not have been waited for (a zombie has ended). 0 as
 * well where `own`, this process, can't tell. */
int comm_process_has_ended(const comm_process *own, const comm_process *other);

/* What a communicator and its duplicates know about their ranks: which process each is, and whether
 * one is gone. Whoever waits for a rank looks at it now and then. The first failure breaks the
 * communicator for good: what comes after fails at once, and names the same rank. */

typedef enum comm_why {
    COMM_HAS_ENDED = 1, /* the rank's process */
    COMM_IS_LATE,       /* it did not come within the limit */
    COMM_FAILED,        /* MPI, or a function of the caller's table, failed on the rank */
} comm_why;

/* Why a communicator is broken. Zeroed: it is not. */
typedef struct comm_failure {
    int16_t why, code; /* code: of MPI or the table */
    int32_t rank;      /* -1: some rank */
} comm_failure;

typedef struct comm_watch {
    _Atomic comm_failure failure;
    _Atomic comm_failure *shared; /* the same for all ranks of a host; NULL: they share nothing */
    _Atomic uint64_t limit_ns;    /* a rank is waited for so long; 0: for ever */
    atomic_int users;             /* communicators that have it */
    atomic_flag hears;            /* a thread receives what ranks tell each other of failures */
    int rank, size;
    comm_process processes[]; /* of all ranks */
} comm_watch;

/* With processes that nobody can look up; NULL where memory is short. Has one user. */
comm_watch *comm_watch_create(int rank, int size);
/* One more user. */
comm_watch *comm_watch_share(comm_watch *watch);
/* Frees it after its last user. */
void comm_watch_release(comm_watch *watch);

/* A limit in seconds as nanoseconds, never 0 unless it is 0. -1: it is less than 0, or too much. */
int comm_watch_limit_of(double seconds, uint64_t *ns);
/* The same of a text; NULL or empty: 0. -1 also where it is no number. */
int comm_watch_read_limit(const char *seconds, uint64_t *ns);

/* The failure so far; why is 0 where there is none. */
comm_failure comm_watch_failure(comm_watch *watch);
int comm_watch_is_broken(comm_watch *watch);
/* Breaks it, unless it is: the first failure stays. */
void comm_watch_break(comm_watch *watch, comm_why why, int code, int rank);

/* Whether a rank's process has ended, as far as this one can tell. rank -1: of any other rank,
 * which is then put in *which. */
int comm_watch_has_ended(const comm_watch *watch, int rank, int *which);

/* Waiting for a rank; zeroed when it begins. */
typedef struct comm_patience {
    int64_t began, looked; /* ns */
} comm_patience;

typedef enum comm_waiting {
    COMM_GOES_ON,
    COMM_BROKEN, /* comm_watch_failure says why */
    COMM_LOOK,   /* it is time to look whether processes have ended */
    COMM_OVER,   /* the limit */
} comm_waiting;

/* Called again and again in a loop that waits, between short naps. */
comm_waiting comm_watch_wait(comm_watch *watch, comm_patience *patience);
/* Nanoseconds of a clock that only goes forward. */
int64_t comm_watch_clock(void);

/* Ranks in groups: those of one host, or those that share memory. */

/* Each rank is in one group. Groups are numbered in the order of their lowest ranks. */
typedef struct comm_groups {
    int n, own; /* how many there are; the number of this rank's */
    int *of;    /* [rank]: the number of its group */
    int *first; /* [group]: where its ranks begin in `ranks`; first[n] is the number of all ranks */
    int *ranks; /* ascending within a group */
    atomic_int users;
} comm_groups;

/* How many ranks a group has. */
static inline int comm_groups_size(const comm_groups *g, int group) {
    return g->first[group + 1] - g->first[group];
}
/* A rank of a group: the lowest has number 0. */
static inline int comm_groups_rank(const comm_groups *g, int group, int number) {
    return g->ranks[g->first[group] + number];
}

/* How many ranks the largest group has. */
int comm_groups_largest(const comm_groups *groups);

/* Memory for groups of so many ranks, which have one user. NULL where it is short. */
comm_groups *comm_groups_room(int size);
/* Fills it: ranks with equal keys are in one group. */
void comm_groups_fill(comm_groups *groups, int rank, int size, const uint64_t *keys);
/* Both. */
comm_groups *comm_groups_make(int rank, int size, const uint64_t *keys);
/* Each rank in a group of its own. */
comm_groups *comm_groups_make_single(int rank, int size);
/* One more user. */
comm_groups *comm_groups_share(comm_groups *groups);
/* Frees it after its last user. NULL is ignored. */
void comm_groups_release(comm_groups *groups);
