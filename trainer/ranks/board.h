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
                                        of 6 files rebuilt"; set once */
    ranks_board_entry entries[RANKS_BOARD_RANKS];
} ranks_board;
