/* The agent's side of the board (ranks/board.h), and the file in which ranks give the reason of a
 * failure. Both lie in memory, and ranks of this host find them by DCP_RUN_BOARD and
 * DCP_RUN_REASON. */
#pragma once

#include <jansson.h>

#include "ranks/board.h"

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
/* An entry as a part of the message `board`, and back; 0, or -1 where it is none. */
json_t *launcher_board_pack(int rank, const launcher_seen *seen);
int launcher_board_unpack(const json_t *packed, int *rank, launcher_seen *seen);

/* Where the run goes on, as rank 0 has told it; NULL: not told (yet). Freed by the caller. */
char *launcher_board_resumed(const launcher_board *board);
/* The first line of the reason, "" where there is none. Freed by the caller. */
char *launcher_board_reason(const launcher_board *board);

/* Asks the ranks of this host. */
void launcher_board_ask_to_save(launcher_board *board, uint64_t number);
void launcher_board_ask_to_end(launcher_board *board, ranks_end_request how);
