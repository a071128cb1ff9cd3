/* Who takes part in the next start: which hosts, with how many ranks each. Nothing but the host
 * file is read here; what happened to ranks and hosts is told by the calls below.
 *
 * The hosts' names are those of the host file (or of Slurm's list) wherever a host is named. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "launcher/hosts/hosts.h"
#include "launcher/hosts/placing.h"

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
