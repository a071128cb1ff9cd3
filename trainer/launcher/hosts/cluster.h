/* Who takes part in the next start: which hosts, with how many ranks each. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "launcher/hosts/hosts.h"

/* Which hosts have how many ranks of the next start: pure arithmetic over what is known of them. */

/* What a failure is followed by.
 * - SAME: as many ranks as before. A host that is gone, or whose ranks failed in two starts in a
 *   row, is left out where the other hosts have slots for all ranks, else it is tried again.
 * - SHRINK: the same without a slot for each rank that died by itself, and on fewer ranks where a
 *   host that is left out cannot be replaced by free slots of others; not below `min`: where that
 *   would not be reached, slots and hosts that failed are used again. Where all ranks died, their
 *   slots are not what is to blame, and none is taken.
 * - FAIL: the caller does not place again. */
typedef enum launcher_on_failure {
    LAUNCHER_ON_FAILURE_SAME,
    LAUNCHER_ON_FAILURE_SHRINK,
    LAUNCHER_ON_FAILURE_FAIL,
} launcher_on_failure;

typedef struct launcher_cluster_options {
    int ranks;              /* of the first start */
    int min;                /* 0: not given, 1 */
    int max;                /* 0: not given, `ranks` */
    const char *hosts_file; /* NULL: none */
    int in_slurm;           /* without a hosts_file: the job's nodes */
    int evenly;             /* hosts are filled evenly, not one after the other */
    launcher_on_failure on_failure;
} launcher_cluster_options;

/* How much is asked of slots: a start takes those of the first level, and of each further one only
 * where it must. */
typedef enum slot_level {
    LEVEL_SOUND,
    LEVEL_TAKEN,     /* and slots whose rank died */
    LEVEL_FAILING,   /* and hosts whose ranks failed in two starts in a row */
    LEVEL_NO_ANSWER, /* and hosts that did not answer */
} slot_level;

typedef struct cluster_host {
    char *name;
    int slots;
    int taken;        /* slots whose rank died (shrink) */
    slot_level level; /* from which on it is used: SOUND, FAILING or NO_ANSWER */
    int in_a_row;     /* starts in a row in which it failed */
    int used;         /* ranks of the last start */
    int failed;       /* of these, died by themselves */
    int lost;         /* it did not answer in the last start */
    int planned;      /* ranks of the start that is being planned */
} cluster_host;

typedef struct launcher_cluster {
    launcher_cluster_options options;
    cluster_host *at; /* with no host file, and outside of Slurm: this host */
    size_t n;
    int is_unlimited; /* that one */
    int goal;         /* ranks that are wanted */
    int most;         /* ranks that still run, after some died; INT_MAX: none did */
    int refused_from; /* so many ranks, and more, were refused by themselves; INT_MAX: none */
    int spreads;      /* ranks are spread evenly, as what they were else was refused */
    int gave_back;    /* slots whose rank died are used again, as no world was left without */
    int resized;      /* goal was asked for by a resize */
    int failures;     /* in a row */
    int placed;       /* a start was placed */
    char *text;       /* of the host file, as it is used */
    char *seen;       /* as it was found at the last look; NULL: as `text` */
    char *refused;    /* as it was refused, and that said; NULL: none */
    int unreadable;   /* looks in a row that could not read it */
} launcher_cluster;

/* Who takes part in the next start: which hosts, with how many ranks each. Nothing but the host
 * file is read here; what happened to ranks and hosts is told by the calls below.
 *
 * The hosts' names are those of the host file (or of Slurm's list) wherever a host is named. */

typedef struct launcher_placement {
    int ranks;
    launcher_host *at; /* the hosts that take part; `slots` is the number of ranks there */
    size_t n;          /* 0: this host alone, without limits */
} launcher_placement;

void launcher_placement_free(launcher_placement *placement);

/* Reads who is there. 0, or an exit status after a message: no host file, too few slots, a min
 * above what is there, ... Keeps its own copy of the options; hosts_file must live as long as it.
 */
int launcher_cluster_open(launcher_cluster **out, const launcher_cluster_options *options);
void launcher_cluster_close(launcher_cluster *cluster);

/* Places the next start, after a look at the host file; *out is freed by launcher_placement_free.
 * 0, or PROGRAM_FAILED after a message. Says which hosts and slots are left out since the last one.
 */
int launcher_cluster_place(launcher_cluster *cluster, launcher_placement *out);

/* Called about once a second while a start runs: looks at the host file. 1: what would be placed
 * differs from what was placed last, a planned restart is due; 0: it does not. A change counts when
 * two looks have found the same, so that no half-written file does. One that cannot be used is said
 * once, and the old content stays. A changed file makes good what was left out; where it has more
 * slots than before, ranks may become as many as `max`. */
int launcher_cluster_refresh(launcher_cluster *cluster);

/* A rank of the start that was placed last died there by itself; called once for each. host NULL:
 * it is not known where. */
void launcher_cluster_rank_failed(launcher_cluster *cluster, const char *host);
/* It does not answer. */
void launcher_cluster_host_lost(launcher_cluster *cluster, const char *host);
/* A newer step was published: failures in a row begin at 0 again. */
void launcher_cluster_progressed(launcher_cluster *cluster);

/* From the next start on it is `ranks`, whatever the host file will offer. 0; -1 with *why, and
 * nothing is changed: too many for the slots, or not within --min and --max where these were given.
 */
int launcher_cluster_resize(launcher_cluster *cluster, int ranks, char *why, size_t size);

/* With SHRINK: the ranks of the start that was placed last refused their number, or how they were
 * spread over the hosts, as where a store would survive less than is asked for. 1, and *text says
 * what is placed next: the same number spread evenly, or one less, or, where none is left, once
 * between two steps, as many as wanted with the slots whose ranks died; 0: none is left. A changed
 * host file and a resize make all of them good again. */
int launcher_cluster_refused(launcher_cluster *cluster, char *text, size_t size);

/* Called once after each failure: how long to wait before the next start. 0 after the first in a
 * row, then 0.5, 1, 2, ... 30. */
double launcher_cluster_backoff_s(launcher_cluster *cluster);

/* What to say where no restart is left, such as "host n3 does not answer ...: --on-failure shrink
 * goes on without it"; "" where hosts have nothing to do with it. */
void launcher_cluster_advice(const launcher_cluster *cluster, char *text, size_t size);

/* [{"host":..., "slots":..., "used":..., "state":"in use"|"free"|"left out: ..."}]; slots is null
 * for a host without limits. */
json_t *launcher_cluster_status(const launcher_cluster *cluster);
