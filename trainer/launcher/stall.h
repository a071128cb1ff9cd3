/* Ranks that hang: whether any rank of a start still makes progress. One that hangs stops all
 * others soon, since they wait for it, while one that has less to do may rightly be quiet for a
 * while; hence a stall is that none makes any. No clock is read here: times are the caller's. */
#pragma once

#include <stdint.h>

#include "ranks/board.h"

/* What a rank has told last (ranks/board.h). */
typedef struct launcher_beat {
    uint64_t progress, step, micro_batch;
    uint32_t phase;   /* ranks_phase */
    double slowest_s; /* its slowest step of this start; 0: it has done none */
} launcher_beat;

typedef struct launcher_stall {
    double given_s; /* <= 0: the default limit */
    int ranks;
    double moved_at;                        /* when a rank was last seen to make progress */
    int has_moved;                          /* one was */
    double slowest_s;                       /* of all ranks */
    launcher_beat beats[RANKS_BOARD_RANKS]; /* all 0: nothing was told yet */
    unsigned char has_told[RANKS_BOARD_RANKS];
} launcher_stall;

/* A start of `ranks` ranks begins. given_s: seconds without progress that are a stall; <= 0: ten
 * times the slowest step of this start, and at least 300 s, from its first step on. */
void launcher_stall_begin(launcher_stall *stall, double given_s, int ranks);

/* What a rank tells, known at `now`: the first is progress, also where it is all 0, and then what
 * differs. Not for ranks of programs that never tell anything. */
void launcher_stall_beat(launcher_stall *stall, int rank, const launcher_beat *beat, double now);

/* When it is a stall, unless a rank makes progress before. 0: never, as no rank has told anything,
 * or there is no limit yet. */
double launcher_stall_deadline(const launcher_stall *stall);

/* The rank whose step, then micro-batch, then progress is least; -1 where all are equally far. One
 * that has told nothing is behind the others. */
int launcher_stall_behind(const launcher_stall *stall);
