/* Looking at other processes through /proc. */
#ifndef TRAINER_LAUNCHER_PROCS_H
#define TRAINER_LAUNCHER_PROCS_H

#include <stddef.h>
#include <sys/types.h>

/* Calls `visit` with each process whose parent is `parent` (also zombies). 0, or -1 where /proc
 * cannot be read. */
int procs_children(pid_t parent, void (*visit)(void *ctx, pid_t child), void *ctx);

/* The value of OMPI_COMM_WORLD_RANK in the environment with which `pid` was started; -1 where it
 * has none (yet). */
int procs_mpi_rank(pid_t pid);

#endif
