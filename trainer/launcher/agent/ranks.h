/* The ranks of a host as its agent sees them, and the board that it shares with them. */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "launcher/agent/channel.h"
#include "ranks/board.h"

/* The agent's side of the board (ranks/board.h), and the file in which ranks give the reason of a
 * failure. Both lie in memory, and ranks of this host find them by DCP_RUN_BOARD and
 * DCP_RUN_REASON. */

typedef struct launcher_board {
    int fd, reason_fd;   /* -1: there is none, and nothing is ever told */
    ranks_board *shared; /* NULL: none */
} launcher_board;

/* What was last told of a rank. */
typedef struct launcher_seen {
    uint64_t progress, step, micro_batch, published, saves_done, slowest_ns;
    uint32_t phase, told;
} launcher_seen;

/* Makes both. Where there is no memory for them ranks tell nothing. They last as long as
 * this process. */
void launcher_board_open(launcher_board *board);
/* Sets the variables, in what is about to start the ranks; `agent` is the process that holds the
 * files. */
void launcher_board_set(const launcher_board *board, int agent);

/* The rank's entry; all zero without a board. */
launcher_seen launcher_board_look(const launcher_board *board, int rank);
/* Reads an entry of the message `board`. Returns 0, or -1 if it is none. */
int launcher_board_unpack(const json_t *packed, int *rank, launcher_seen *seen);

/* The first line of the reason, "" where there is none. Freed by the caller. */
char *launcher_board_reason(const launcher_board *board);

/* Asks the ranks of this host. */
void launcher_board_ask_to_save(launcher_board *board, uint64_t number);
void launcher_board_ask_to_end(launcher_board *board, ranks_end_request how);

/* The ranks of a host as its agent sees them. */

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
