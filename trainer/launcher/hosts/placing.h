/* Which hosts have how many ranks of the next start: pure arithmetic over what is known of them. */
#pragma once

#include <stddef.h>

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

int launcher_placing_lowest(const launcher_cluster *c); /* ranks that a start must have */
int launcher_placing_shrinks(const launcher_cluster *c);
int launcher_placing_slots(const launcher_cluster *c); /* of all hosts */

/* Slots of a host, and of all, that may be used at a level. */
int launcher_placing_usable_at(const launcher_cluster *c, const cluster_host *h, slot_level level);
int launcher_placing_usable(const launcher_cluster *c, slot_level level);

/* Fills in `planned`. Returns how many ranks there are. */
int launcher_placing_ranks(launcher_cluster *c);

/* Whether that is another spread than that of the last start. */
int launcher_placing_differs(const launcher_cluster *c);
