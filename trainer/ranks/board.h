/* The board: memory that dcp-run's agent on a host shares with the ranks there. Ranks write how far
 * they are, the agent what it asks them for. DCP_RUN_BOARD names it; without it all calls below do
 * nothing. Both sides are of one build. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { RANKS_BOARD_MAGIC = 0x64637262, RANKS_BOARD_RANKS = 4096, RANKS_BOARD_TEXT = 512 };

typedef enum ranks_phase {
    RANKS_PHASE_NONE,
    RANKS_PHASE_STARTED, /* MPI is up */
    RANKS_PHASE_READY,   /* before the state is read */
    RANKS_PHASE_REBUILT, /* lost pieces are made again, where there were any */
    RANKS_PHASE_LOADED,
    RANKS_PHASE_STEPPED /* the first step is done */
} ranks_phase;

typedef enum ranks_end_request {
    RANKS_END_NONE,
    RANKS_END_RESIZE, /* save to the fastest store, end with 143 */
    RANKS_END_STOP,   /* save as SIGTERM does, end with 143 */
    RANKS_END_REQUEUE /* save as SIGTERM does, end with 75 */
} ranks_end_request;

/* Of a rank, by its number in the world; written by that rank alone. */
typedef struct ranks_board_entry {
    _Atomic uint64_t progress;    /* grows by 1 with each micro-batch and evaluation batch, and with
                                     bytes of a load or a save (one for each call of on_progress) */
    _Atomic uint64_t step;        /* steps done, of the state */
    _Atomic uint64_t micro_batch; /* begun in the step in work, from 1; 0: none */
    _Atomic uint64_t published;   /* 1 + the newest step that this start has published in any store;
                                     0: none */
    _Atomic uint64_t saves_done;  /* the value of saves_asked that was answered last */
    _Atomic uint64_t slowest_ns;  /* the slowest step of this start so far */
    _Atomic uint32_t phase;       /* ranks_phase */
    _Atomic uint32_t told;        /* 0: nothing; 1: it runs and will tell its status; 2 + status: it
                                     ends with that */
    _Atomic uint64_t at_ns[RANKS_PHASE_STEPPED + 1]; /* CLOCK_MONOTONIC at which a phase was
                                                        reached; 0: not yet */
} ranks_board_entry;

typedef struct ranks_board {
    uint32_t magic, bytes;           /* sizeof(ranks_board) */
    _Atomic uint64_t saves_asked;    /* written by the agent: counts requests to save and go on */
    _Atomic uint32_t end_asked;      /* written by the agent: ranks_end_request; a later larger
                                        value wins */
    _Atomic uint32_t resumed_is_set; /* 1 once `resumed` is whole */
    char resumed[RANKS_BOARD_TEXT];  /* rank 0: from where it goes on: "step 12 from ckpt-memory, 2
                                        files rebuilt"; set once */
    ranks_board_entry entries[RANKS_BOARD_RANKS];
} ranks_board;

/* The rank's side. Any thread may call these; without a board they do nothing, or find nothing. */

/* Maps the board, and tells that this rank runs and will tell its exit status. */
void ranks_board_open(int rank);
/* The last call: the exit status that follows. */
void ranks_board_end(int status);

/* Notes that a phase is reached, now. One that is reached again was not over, and
 * those that were passed over took no time. */
void ranks_board_reach(ranks_phase phase);

/* Something is done: the rank does not hang. */
void ranks_board_beat(void);
/* The same as the on_progress of a load or a save; its arguments are not used. */
void ranks_board_on_progress(void *ctx, uint64_t done, uint64_t total);
/* A micro-batch of the step in work begins, by its number from 1. */
void ranks_board_micro_batch(uint64_t number);
/* The state is at `step`: as it was loaded, in 0 seconds, or computed, in that many. */
void ranks_board_step(uint64_t step, double seconds);

/* A step is published in some store. */
void ranks_board_publish(uint64_t step);
/* Of rank 0: from where the start goes on. The first text counts. */
void ranks_board_resumed(const char *text);

/* The count of requests to save and go on. Once the save has ended, well (ranks_board_publish was
 * called before) or not, the count that it answers is handed back. */
uint64_t ranks_board_saves_asked(void);
void ranks_board_saves_answered(uint64_t asked);
ranks_end_request ranks_board_end_asked(void);

/* Opens a file that dcp-run has made in memory, and whose path the environment names in `variable`;
 * -1 where that is none, or a file of any other kind. */
int ranks_board_open_file(const char *variable, int flags);
