/* What /proc tells of processes. They come and go meanwhile: one that has vanished is skipped. */
#pragma once

#include <sys/types.h>

/* Calls `visit` with each process whose parent is `parent`, also with zombies. */
void launcher_processes_visit(pid_t parent, void (*visit)(void *ctx, pid_t child), void *ctx);

/* The value of `name` in the environment with which `pid` was started, freed by the caller; NULL
 * where it has none (yet). */
char *launcher_processes_variable(pid_t pid, const char *name);

/* How many children of `pid`, which may be a zombie, have ended and been waited for, by what the
 * kernel has added up of them: 0 or more than 0. -1: not known. */
int launcher_processes_waited(pid_t pid);

/* Whether `pid` is on its way to its end: it has no environment any more, but is no zombie yet, so
 * that files which it holds may still be open. */
int launcher_processes_is_ending(pid_t pid);

/* What a process is doing: "123 (name), state D, in nfs_wait". NULL for a zombie, or where there is
 * none; freed by the caller. */
char *launcher_processes_describe(pid_t pid);
