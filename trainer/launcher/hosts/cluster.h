/* Chooses the hosts of the next start, and the number of ranks on each. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "launcher/hosts/hosts.h"

/* What happens after a failure.
 * - SAME: as many ranks as before. A host that is gone, or whose ranks failed in two starts in a
 * row, is left out if the other hosts have slots for all ranks; otherwise it is tried again.
 * - SHRINK: like SAME, but a rank that died on its own is not replaced, and its slot is not used
 * any more. The number of ranks also falls if free slots of other hosts cannot replace a host that
 * is left out. If the number of ranks would fall below `min`, slots and hosts that failed are used
 * again. If all ranks died, their slots are not the cause, and all slots remain in use.
 * - FAIL: there is no further start. */
typedef enum launcher_on_failure {
    LAUNCHER_ON_FAILURE_SAME,
    LAUNCHER_ON_FAILURE_SHRINK,
    LAUNCHER_ON_FAILURE_FAIL,
} launcher_on_failure;

typedef struct launcher_cluster_options {
    int ranks;              /* the ranks of the first start */
    int min;                /* the minimum number of ranks of a start; 0: not given, so 1 */
    int max;                /* the maximum number of ranks of a start; 0: not given, so `ranks` */
    const char *hosts_file; /* NULL: none */
    bool in_slurm;          /* without a hosts_file: use the job's nodes */
    bool evenly;            /* fill hosts evenly, not one after the other */
    launcher_on_failure on_failure;
} launcher_cluster_options;

/* Levels of slots. A start uses the slots of a level only if the slots of the earlier levels do not
 * suffice. */
typedef enum slot_level {
    LEVEL_SOUND,
    LEVEL_DEAD,      /* also slots whose rank died */
    LEVEL_FAILING,   /* also hosts whose ranks failed in two starts in a row */
    LEVEL_NO_ANSWER, /* also hosts that did not answer */
} slot_level;

typedef struct cluster_host {
    char *name;
    int slots;
    int dead;         /* slots whose rank died (shrink) */
    slot_level level; /* the first level that uses the host: LEVEL_SOUND, LEVEL_FAILING or
                         LEVEL_NO_ANSWER */
    int in_a_row;     /* consecutive starts in which the host failed */
    int used;         /* ranks in the last start */
    int failed;       /* ranks that died on their own in the last start */
    bool lost;        /* the host did not answer in the last start */
    int planned;      /* ranks in the start that is being planned */
} cluster_host;

typedef struct launcher_cluster {
    launcher_cluster_options options;
    cluster_host *at; /* without a host file, and outside of Slurm: this host */
    size_t n;
    bool is_unlimited; /* at[0] is this host, without limits */
    int goal;          /* the desired number of ranks */
    int most;          /* a limit on the ranks: how many were left after deaths; INT_MAX: none */
    int refused_from;  /* the smallest number of ranks that was rejected; INT_MAX: none */
    bool distributes_evenly; /* spread ranks evenly, because they rejected a different
                                distribution */
    bool reuses_dead_slots;  /* slots whose rank died are used again, because no other number of
                                ranks was left to try */
    bool resized;            /* a resize has set the goal */
    int failures;            /* failures in a row, with no newer step published between them */
    bool placed;             /* a start has been placed */
    char *text;              /* the contents of the host file that are in use */
    char *seen;              /* new contents that one check has found so far; NULL: none */
    char *refused;           /* contents that were refused with a message; NULL: none */
    int unreadable;          /* consecutive checks that could not read the file */
} launcher_cluster;

/* This module reads only the host file. The caller reports what happened to ranks and hosts,
 * through the functions below. Hosts are always named as in the host file, or as in Slurm's
 * list. */

typedef struct launcher_placement {
    int ranks;
    launcher_host *at; /* the hosts that take part; `slots`: ranks on that host */
    size_t n;          /* 0: only this host, without limits */
} launcher_placement;

void launcher_placement_free(launcher_placement *placement);

/* Reads the hosts. Returns 0, or an exit status after a message, for example if there is no host
 * file, or if there are fewer slots than `min`. Copies the options; hosts_file must live as long as
 * the cluster. */
int launcher_cluster_open(launcher_cluster **out, const launcher_cluster_options *options);
void launcher_cluster_close(launcher_cluster *cluster);

/* Reads the host file again and places the ranks of the next start. *out is freed by
 * launcher_placement_free. Returns 0, or PROGRAM_FAILED after a message. Prints which hosts and
 * slots are newly left out. */
int launcher_cluster_place(launcher_cluster *cluster, launcher_placement *out);

/* Checks the host file; to be called about once per second during a start. Returns true if the next
 * placement would differ from the last one, so a planned restart is due; otherwise false. A change
 * counts once two checks in a row find the same contents, so the contents of a half-written file
 * are not used. Contents that cannot be used are reported once, and the old contents remain in use.
 * After a change, hosts and slots that were left out are used again. If the file has more slots
 * than before, there may be up to `max` ranks. */
bool launcher_cluster_refresh(launcher_cluster *cluster);

/* Returns how many hosts of the last start have no ranks in the next one, as far as is known now.
 */
int launcher_cluster_dropped(launcher_cluster *cluster);

/* Reports that a rank of the last start died on its own on `host`; NULL: the host is not known. To
 * be called once for each such rank. */
void launcher_cluster_rank_failed(launcher_cluster *cluster, const char *host);
/* Reports that the host does not answer. */
void launcher_cluster_host_lost(launcher_cluster *cluster, const char *host);
/* Reports that a newer step was published, which resets the count of failures in a row to 0. */
void launcher_cluster_progressed(launcher_cluster *cluster);

/* Sets the number of ranks of the next starts, which stays the same even if the host file has more
 * slots later. Returns 0. If there are fewer slots, or --min or --max excludes the number, changes
 * nothing, writes the reason to `why`, and returns -1. */
int launcher_cluster_resize(launcher_cluster *cluster, int ranks, char *why, size_t size);

/* To be called if the ranks of the last start rejected their number, or their distribution over the
 * hosts, for example because a store would survive fewer losses than it should. Chooses what to try
 * next, and describes it in `text`. The choices are, in this order: the same number of ranks,
 * spread evenly; fewer ranks; and the desired number, for which the slots whose ranks died are used
 * again. The last choice is made at most once until a newer step is published. Returns false if
 * there is nothing left to try, or without SHRINK. A changed host file and a resize make all
 * numbers acceptable again. */
bool launcher_cluster_refused(launcher_cluster *cluster, char *text, size_t size);

/* To be called once after each failure. Returns how long to wait before the next start: 0 after the
 * first failure in a row, then 0.5, 1, 2, ... 30 s. */
double launcher_cluster_backoff_s(launcher_cluster *cluster);

/* Fills in what to print if no restart is left, such as "host n3 does not answer ...: --on-failure
 * shrink continues without it"; "" if hosts are not the cause. */
void launcher_cluster_advice(const launcher_cluster *cluster, char *text, size_t size);

/* Returns [{"host":..., "slots":..., "used":..., "state":"in use"|"free"|"left out: ..."}]; slots
 * is null for a host without limits. */
json_t *launcher_cluster_status(const launcher_cluster *cluster);
