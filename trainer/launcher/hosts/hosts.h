/* Which hosts exist, and how many ranks each accepts: from a host file in Open MPI's format, or
 * from the variables of a Slurm job. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { LAUNCHER_HOSTS_MAX = 4096, LAUNCHER_SLOTS_MAX = 4096 };

typedef struct launcher_host {
    char *name; /* as written in the file or the list */
    int slots;  /* ranks that it accepts; 0: none at present */
} launcher_host;

typedef struct launcher_hosts {
    launcher_host *at; /* each host once, in the order in which they are first named */
    size_t n;
} launcher_hosts;

/* Parses a host file; `path` is for the messages. Returns 0; PROGRAM_USAGE after a message that
 * names file, line and remedy; or PROGRAM_FAILED if memory is short. *out is freed by
 * launcher_hosts_free, and is empty after a failure.
 *
 * A line is `name slots=8`; `cpu=` and `count=` mean the same as `slots=`. Without `slots=`, the
 * value of `max_slots=` is the number of slots. Comments have the same form as in Open MPI's host
 * files. A name alone counts as one slot, and as one more each time it is repeated. */
int launcher_hosts_parse(const char *text, const char *path, launcher_hosts *out);

/* Lists the nodes of the Slurm job that this process belongs to (SLURM_JOB_NODELIST), with the
 * tasks of each (SLURM_TASKS_PER_NODE, SLURM_NTASKS_PER_NODE; CPUs if neither is set). Fails as
 * launcher_hosts_parse does. */
int launcher_hosts_of_slurm(launcher_hosts *out);

/* Returns a whole file as text, which the caller frees; NULL, with errno, on failure. errno is
 * EFBIG if the file is too long for a host file. */
char *launcher_hosts_text(const char *path);

void launcher_hosts_free(launcher_hosts *hosts);

/* Returns the number of slots of all hosts. */
int launcher_hosts_slots(const launcher_hosts *hosts);

/* Returns true if a name or address is this host's: localhost, its host name with or without the
 * domain, one of its addresses, or a name that resolves to one. May take seconds if a name server
 * does not answer. */
bool launcher_hosts_is_local(const char *name);
/* Does the same without a name server. */
bool launcher_hosts_is_local_name(const char *name);
