/* The ranks of a host as its agent sees them. */
#pragma once

#include <sys/types.h>

#include "launcher/agent/channel.h"
#include "launcher/agent/host_board.h"

typedef struct launcher_local_rank {
    int rank;
    pid_t pid;
    int fd;             /* pidfd; -1: it has ended */
    launcher_seen told; /* what dcp-run knows of it */
} launcher_local_rank;

typedef struct launcher_local_ranks {
    launcher_local_rank *at;
    size_t n;
    const char *variable; /* that says which one a process is */
    int ends;             /* epoll's descriptor of all pidfds, readable once one has ended */
    int signal_new;       /* what a rank gets that is found from now on; 0: nothing */
    int launched;         /* some process of a rank was seen */
} launcher_local_ranks;

/* 0, or -1 with errno. `variable` stays the caller's. */
int launcher_ranks_open(launcher_local_ranks *ranks, const char *variable);
/* Looks for ranks below this process that are not known yet, and tells of them. */
void launcher_ranks_find(launcher_local_ranks *ranks, launcher_channel *channel);
/* How many of them have not ended. */
int launcher_ranks_alive(const launcher_local_ranks *ranks);
/* SIGKILL to those that have fallen to this process: what has started them is dead, which the
 * mpirun of MPICH does not notice. */
void launcher_ranks_end_orphans(const launcher_local_ranks *ranks);
/* Takes note of ranks that have ended, in the order in which they did, and tells of them. */
void launcher_ranks_take_ends(launcher_local_ranks *ranks, const launcher_board *board,
                              launcher_channel *channel);
/* Tells what the board has new. Whether some rank is on its way to its first step. */
int launcher_ranks_tell(launcher_local_ranks *ranks, const launcher_board *board,
                        launcher_channel *channel);
/* Sends a signal to every rank that lives; with `board`, only to those that tell nothing on it.
 * SIGUSR1 goes to those alone that it does not end. */
void launcher_ranks_signal(const launcher_local_ranks *ranks, int signal,
                           const launcher_board *board);
