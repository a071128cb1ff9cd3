/* The board: memory that dcp-run's agent on a host shares with the ranks there. The ranks write
 * their progress on it, and the agent writes its requests. The environment variable DCP_RUN_BOARD
 * names the board; if it is not set, the calls below do nothing. The agent and the ranks must be
 * from the same build. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { RANKS_BOARD_MAGIC = 0x64637262, RANKS_BOARD_RANKS = 4096, RANKS_BOARD_TEXT = 512 };

typedef enum ranks_phase {
    RANKS_PHASE_NONE,
    RANKS_PHASE_STARTED, /* MPI is initialized */
    RANKS_PHASE_READY,   /* set up, and about to read the state */
    RANKS_PHASE_REBUILT, /* lost pieces, if any, have been rebuilt */
    RANKS_PHASE_LOADED,
    RANKS_PHASE_STEPPED /* the first step is done */
} ranks_phase;

typedef enum ranks_end_request {
    RANKS_END_NONE,
    RANKS_END_RESIZE, /* save to the fastest store that the next start can read, and end with status
                         143 */
    RANKS_END_STOP,   /* save as for SIGTERM, and end with status 143 */
    RANKS_END_REQUEUE /* save as for SIGTERM, and end with status 75 */
} ranks_end_request;

/* The entry of a rank, indexed by its number in the world. Only that rank writes it. */
typedef struct ranks_board_entry {
    /* Grows by 1 with each micro-batch and evaluation batch, and with each call of on_progress
     * during a load or a save. */
    _Atomic uint64_t progress;
    _Atomic uint64_t step;        /* the state's step: the number of steps done */
    _Atomic uint64_t micro_batch; /* the last one begun in this step, counted from 1; 0: none */
    /* 1 + the newest step that this start has published in any store; 0: none. */
    _Atomic uint64_t published;
    _Atomic uint64_t saves_done; /* the number of the last save request that was answered */
    _Atomic uint64_t slowest_ns; /* the slowest step of this start so far */
    /* 1 + the step with which the rank ends on RANKS_END_RESIZE, if checkpoint.dir lacks it; 0:
     * none. */
    _Atomic uint64_t handed_over;
    _Atomic uint32_t phase; /* ranks_phase */
    /* 0: nothing yet; 1: the rank runs and will report its status; 2 + status: it ends with that
     * status. */
    _Atomic uint32_t told;
    /* For each phase: the CLOCK_MONOTONIC time at which it was reached; 0: not yet. */
    _Atomic uint64_t at_ns[RANKS_PHASE_STEPPED + 1];
} ranks_board_entry;

typedef struct ranks_board {
    uint32_t magic, bytes; /* magic: RANKS_BOARD_MAGIC; bytes: sizeof(ranks_board) */
    _Atomic uint64_t
        saves_requested; /* written by the agent: counts requests to save and continue */
    /* Written by the agent: a ranks_end_request. A larger value replaces a smaller one. */
    _Atomic uint32_t end_requested;
    /* Written by the agent before RANKS_END_RESIZE: the number of hosts that the next start leaves,
     * with everything in their memory. It grows if the plan changes. */
    _Atomic uint32_t hosts_dropped;
    _Atomic uint32_t resumed_is_set; /* 1 once `resumed` is complete */
    /* Written once by rank 0: where the run continues from, such as "step 12 from ckpt-memory, 2
     * files rebuilt". */
    char resumed[RANKS_BOARD_TEXT];
    ranks_board_entry entries[RANKS_BOARD_RANKS];
} ranks_board;

/* The rank's side. Any thread may call these functions. Without a board they do nothing, or return
 * 0. */

/* Maps the board, and announces that this rank runs and will report its exit status. */
void ranks_board_open(int rank);
/* Reports the exit status with which this process is about to end. Must be the last call. */
void ranks_board_end(int status);

/* Records that this rank has reached a phase. If it has reached the phase before, the new time
 * replaces the old one. Phases that were skipped get the same time, so they count as having taken
 * no time. */
void ranks_board_reach(ranks_phase phase);

/* Records progress, which shows that the rank is not hanging. */
void ranks_board_beat(void);
/* Records progress. To be passed as the on_progress of a load or a save; ignores its arguments. */
void ranks_board_on_progress(void *ctx, uint64_t done, uint64_t total);
/* Records that micro-batch `number` of the current step begins. Numbers count from 1. */
void ranks_board_micro_batch(uint64_t number);
/* Records that the state is at `step`. seconds: how long computing that step took; 0: the state was
 * loaded. */
void ranks_board_step(uint64_t step, double seconds);

/* Records that a step is published in some store. */
void ranks_board_publish(uint64_t step);
/* Records that the rank ends on RANKS_END_RESIZE, and that the step is only in a faster store than
 * checkpoint.dir. */
void ranks_board_hand_over(uint64_t step);
/* On rank 0, records where this start continues from; does nothing on other ranks. Only the first
 * text counts. */
void ranks_board_resumed(const char *text);

/* Returns how many requests to save and continue have been made. After a save has ended, pass the
 * number that was returned before that save to ranks_board_saves_answered, even if the save failed.
 * If the save succeeded, call ranks_board_publish first. */
uint64_t ranks_board_saves_requested(void);
void ranks_board_saves_answered(uint64_t asked);
ranks_end_request ranks_board_end_requested(void);
/* Returns how many hosts the start after RANKS_END_RESIZE leaves. */
uint32_t ranks_board_hosts_dropped(void);

/* Opens a file that dcp-run has made in memory and whose path is in the environment variable
 * `variable`. Returns a descriptor; -1 if there is no such file, or the path refers to a file of
 * any other kind. */
int ranks_board_open_file(const char *variable, int flags);
