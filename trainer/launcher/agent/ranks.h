/* The ranks of a host as their agent sees them, and the board that the agent shares with them. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "launcher/agent/channel.h"
#include "ranks/board.h"

/* The agent's side of the board (ranks/board.h), and the file into which ranks write the reason for
 * a failure. Both are in memory; the ranks of this host find them through DCP_RUN_BOARD and
 * DCP_RUN_REASON. */

typedef struct launcher_board {
    int fd, reason_fd;   /* -1: none, and nothing is ever reported */
    ranks_board *shared; /* NULL: none */
} launcher_board;

/* The last report of a rank. */
typedef struct launcher_rank_report {
    uint64_t progress, step, micro_batch, published, saves_done, slowest_ns, handed_over;
    uint32_t phase, told;
} launcher_rank_report;

/* Makes the board and the file for reasons, which exist as long as this process. If there is not
 * enough memory, ranks report nothing. */
void launcher_board_open(launcher_board *board);
/* Sets DCP_RUN_BOARD and DCP_RUN_REASON. To be called in the process that is about to start the
 * ranks; `agent` is the pid of the process that holds the files. */
void launcher_board_set(const launcher_board *board, int agent);

/* Returns the entry of a rank; all zero if there is no board. */
launcher_rank_report launcher_board_read(const launcher_board *board, int rank);
/* Reads one rank's entry, taken from a message of kind "board". Returns 0, or -1 if the entry is
 * malformed. */
int launcher_board_unpack(const json_t *packed, int *rank, launcher_rank_report *seen);

/* Returns the first line of the reason, "" if there is none. The caller frees it. */
char *launcher_board_reason(const launcher_board *board);

/* These functions put a request on the board, for all ranks of this host. dropped: the number of
 * hosts that the next start leaves. */
void launcher_board_request_save(launcher_board *board, uint64_t number);
void launcher_board_request_end(launcher_board *board, ranks_end_request how, uint32_t dropped);

typedef struct launcher_local_rank {
    int rank;
    pid_t pid;
    int fd;                    /* pidfd; -1: the rank has ended */
    launcher_rank_report told; /* the last report that was passed on to dcp-run */
} launcher_local_rank;

typedef struct launcher_local_ranks {
    launcher_local_rank *at;
    size_t n;
    const char *variable; /* the environment variable with a rank's number */
    int ends_fd;          /* epoll descriptor of all pidfds; readable once a rank has ended */
    int signal_new;       /* the signal for ranks that appear later; 0: none */
    bool launched;        /* a rank, or a process that a rank left behind, has been seen */
} launcher_local_ranks;

/* Returns 0, or -1 with errno. `variable` remains the caller's. */
int launcher_ranks_open(launcher_local_ranks *ranks, const char *variable);
/* Searches the descendants of this process for new ranks, and reports them. */
void launcher_ranks_find(launcher_local_ranks *ranks, launcher_channel *channel);
/* Returns how many ranks have not ended. */
int launcher_ranks_alive(const launcher_local_ranks *ranks);
/* Sends SIGKILL to the ranks that have become children of this process: the process that started
 * them is dead, which MPICH's mpirun does not notice. */
void launcher_ranks_end_orphans(const launcher_local_ranks *ranks);
/* Handles the ends of ranks in the order in which they ended, and reports them. */
void launcher_ranks_handle_ends(launcher_local_ranks *ranks, const launcher_board *board,
                                launcher_channel *channel);
/* Reports the changes that ranks have made on the board since the last call. Returns true if some
 * rank that uses the board has not done its first step yet. */
bool launcher_ranks_report(launcher_local_ranks *ranks, const launcher_board *board,
                           launcher_channel *channel);
/* Sends a signal to every rank that is alive; with `board`, only to ranks that report nothing on
 * it. SIGUSR1 is sent only to ranks that catch, ignore or block it, since it would end the
 * others. */
void launcher_ranks_signal(const launcher_local_ranks *ranks, int signal,
                           const launcher_board *board);
