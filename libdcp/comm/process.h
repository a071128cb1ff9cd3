/* Ranks as processes: which host each is on, whether it still runs, and groups of ranks. */
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Which host a rank is on. Ranks on one host share memory, and are lost together.
 *
 * A host is a running kernel (its boot id) with a /dev/shm (its device number), so containers on
 * one machine are separate hosts unless they share /dev/shm. Alternatively, the host is named: by
 * the caller, through dcp_comm_set_host or its table's host_of, or by DCP_HOST in the
 * environment. */

#define COMM_LOCATION_BYTES 128

/* Identifies a rank's host. The ranks of one host have equal bytes. */
typedef struct comm_location {
    char host[COMM_LOCATION_BYTES]; /* readable: "host n7", "boot 5b1c..., /dev/shm 26" */
} comm_location;

/* The UUID of the boot, or the host's name if the UUID can't be read. */
typedef struct comm_boot_id {
    char text[65];
} comm_boot_id;

/* Finds the location of the machine, or container, that this process runs on, even if DCP_HOST or
 * the caller names another host. */
void comm_location_of_machine(comm_location *out);

/* Finds this process's location: the machine, unless DCP_HOST names another one. */
void comm_location_find(comm_location *out);

/* Makes the location of a host that somebody named; the name may have any length. */
void comm_location_named(comm_location *out, const char *name);

/* Makes the location of a host that a caller's table reports. The location is made from the number
 * of the host's lowest rank. */
void comm_location_of_rank(comm_location *out, int rank);

bool comm_location_is_same(const comm_location *a, const comm_location *b);

/* A rank's process, described so that other processes can check whether it has ended. */

/* Zeroed: a process that can't be looked up. */
typedef struct comm_process {
    uint64_t kernel;     /* checksum of the kernel's boot id */
    uint64_t name_space; /* identifies the namespaces of `pid` and `start`; 0: not known */
    uint64_t start; /* when the process began, in the kernel's ticks; distinguishes it from a later
                       process with the same pid */
    int64_t pid;
} comm_process;

/* Describes this process. */
void comm_process_find(comm_process *out);

/* Returns true if `own`, this process, can tell whether `other` has ended: both run under one
 * kernel, and in one PID namespace and one time namespace. */
bool comm_process_can_check(const comm_process *own, const comm_process *other);

/* Returns true if `other` has ended, even if its parent has not waited for it (a zombie). Returns
 * false if it has not, or if `own`, this process, can't tell. */
bool comm_process_has_ended(const comm_process *own, const comm_process *other);

/* A communicator and its duplicates share a watch, which records the process of each rank, and
 * whether a rank has failed. A rank that waits for another one checks the watch now and then. The
 * first failure breaks the communicator for good: all later operations fail at once, and name the
 * same rank. */

typedef enum comm_cause {
    COMM_HAS_ENDED = 1, /* the rank's process has ended */
    COMM_IS_LATE,       /* the rank did not arrive within the limit */
    COMM_FAILED,        /* MPI, or a function of the caller's table, failed on the rank */
} comm_cause;

/* Why a communicator is broken. Zeroed: it is not broken. */
typedef struct comm_failure {
    int16_t why, code; /* why: a comm_cause; code: MPI's error code, or the result of a function of
                          the caller's table */
    int32_t rank;      /* the rank that failed; -1: not known */
} comm_failure;

typedef struct comm_watch {
    _Atomic comm_failure failure;
    _Atomic comm_failure *shared; /* in memory that all ranks share; NULL: they share none */
    _Atomic uint64_t limit_ns;    /* how long a rank is waited for; 0: for ever */
    atomic_int users;             /* the number of communicators that use the watch */
    atomic_flag is_receiving; /* set while a thread receives reports of failures from other ranks */
    int rank, size;
    comm_process processes[]; /* the processes of all ranks, by rank */
} comm_watch;

/* Makes a watch with one user, and with processes that can't be looked up. Returns NULL if memory
 * is short. */
comm_watch *comm_watch_create(int rank, int size);
/* Adds a user. */
comm_watch *comm_watch_share(comm_watch *watch);
/* Removes a user, and frees the watch after the last one. NULL is ignored. */
void comm_watch_release(comm_watch *watch);

/* Converts a limit in seconds to nanoseconds; the result is 0 only for 0. Returns -1 if the limit
 * is negative, too large or not a number. */
int comm_watch_limit_of(double seconds, uint64_t *ns);
/* Converts the text of a limit; NULL and an empty text mean 0. Also returns -1 if the text is not a
 * number. */
int comm_watch_read_limit(const char *seconds, uint64_t *ns);

/* Returns the failure so far; its `why` is 0 if there is none. */
comm_failure comm_watch_failure(comm_watch *watch);
bool comm_watch_is_broken(comm_watch *watch);
/* Breaks the watch unless it is already broken, since the first failure remains. */
void comm_watch_break(comm_watch *watch, comm_cause why, int code, int rank);

/* Returns true if the rank's process has ended, as far as this process can tell; *which becomes the
 * rank. With rank -1, checks all other ranks, and *which becomes the first that has ended. */
bool comm_watch_has_ended(const comm_watch *watch, int rank, int *which);

/* A wait for a rank; zeroed when it begins. */
typedef struct comm_patience {
    int64_t began, checked_at; /* times in ns */
} comm_patience;

typedef enum comm_waiting {
    COMM_CONTINUE,
    COMM_BROKEN,    /* a rank has failed: see comm_watch_failure */
    COMM_CHECK,     /* it is time to check whether processes have ended */
    COMM_TIMED_OUT, /* the limit has passed */
} comm_waiting;

/* Returns what a waiting rank has to do next. Call it repeatedly in the loop that waits, between
 * short naps. */
comm_waiting comm_watch_wait(comm_watch *watch, comm_patience *patience);
/* Returns the time of a monotonic clock in nanoseconds. */
int64_t comm_watch_clock(void);

/* Groups of ranks: those of one host, or those that share memory. */

/* Each rank is in one group. Groups are numbered in the order of their lowest ranks. */
typedef struct comm_groups {
    int n, own; /* how many groups there are; the number of this rank's group */
    int *of;    /* [rank]: the number of its group */
    int *first; /* [group]: where its ranks begin in `ranks`; first[n]: the number of ranks */
    int *ranks; /* ascending within a group */
    atomic_int users;
} comm_groups;

/* Returns the number of ranks in a group. */
static inline int comm_groups_size(const comm_groups *g, int group) {
    assert(group >= 0 && group < g->n);
    return g->first[group + 1] - g->first[group];
}
/* Returns a rank of a group: number 0 is the lowest. */
static inline int comm_groups_rank(const comm_groups *g, int group, int number) {
    assert(number >= 0 && number < comm_groups_size(g, group));
    return g->ranks[g->first[group] + number];
}

/* Returns the number of ranks in the largest group. */
int comm_groups_largest(const comm_groups *groups);

/* Allocates groups for `size` ranks, with one user. Returns NULL if memory is short. */
comm_groups *comm_groups_allocate(int size);
/* Fills the groups: ranks with equal keys are in one group. */
void comm_groups_fill(comm_groups *groups, int rank, int size, const uint64_t *keys);
/* Allocates and fills groups. */
comm_groups *comm_groups_make(int rank, int size, const uint64_t *keys);
/* Makes groups of one rank each. */
comm_groups *comm_groups_make_single(int rank, int size);
/* Adds a user. NULL is ignored. */
comm_groups *comm_groups_share(comm_groups *groups);
/* Removes a user, and frees the groups after the last one. NULL is ignored. */
void comm_groups_release(comm_groups *groups);
