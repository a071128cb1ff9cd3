/* Which hosts there are, and how many ranks each accepts. */
#pragma once

#include <stddef.h>

/* Which hosts there are, and how many ranks each takes: from a host file as Open MPI has them, or
 * from the variables of a Slurm job. */

enum { LAUNCHER_HOSTS_MAX = 4096, LAUNCHER_SLOTS_MAX = 4096 };

typedef struct launcher_host {
    char *name; /* as it is written there */
    int slots;  /* ranks that it takes; 0: none for now */
} launcher_host;

typedef struct launcher_hosts {
    launcher_host *at; /* in the order of the first mention; each host once */
    size_t n;
} launcher_hosts;

/* What a host file says; `path` is for the messages. 0, or PROGRAM_USAGE after a message that says
 * file, line and remedy, or PROGRAM_FAILED where memory is short. *out is freed by
 * launcher_hosts_free, and is empty after a failure.
 *
 * A line is `name slots=8`; `cpu=` and `count=` mean the same. `max_slots=` alone counts as slots.
 * Comments are those of Open MPI. A name alone is one slot, and one more each time it is named
 * again. */
int launcher_hosts_parse(const char *text, const char *path, launcher_hosts *out);

/* The nodes of the Slurm job that this process is in (SLURM_JOB_NODELIST), with the tasks of each
 * (SLURM_TASKS_PER_NODE, SLURM_NTASKS_PER_NODE; CPUs where neither is set). It fails as
 * launcher_hosts_parse does. */
int launcher_hosts_of_slurm(launcher_hosts *out);

/* The whole of a file as text, freed by the caller; NULL with errno. EFBIG: it is no host file. */
char *launcher_hosts_text(const char *path);

void launcher_hosts_free(launcher_hosts *hosts);

/* Slots of all hosts. */
int launcher_hosts_slots(const launcher_hosts *hosts);

/* Whether a name or address is this host's: localhost, its host name with or without the domain, an
 * address of it, or a name that leads to one. May take seconds where a name server does not answer.
 */
int launcher_hosts_is_local(const char *name);
/* The same without asking a name server. */
int launcher_hosts_is_local_name(const char *name);
