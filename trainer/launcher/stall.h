/* Stalls: no rank of a start makes progress any more. If a rank hangs, all others stop soon,
 * because they wait for it. But a rank that makes no progress for a while may just have less work.
 * So only a start in which no rank makes progress is a stall. The caller passes all times; no clock
 * is read here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ranks/board.h"

/* The last report of a rank (ranks/board.h). */
typedef struct launcher_beat {
    uint64_t progress, step, micro_batch;
    uint32_t phase;   /* ranks_phase */
    double slowest_s; /* its slowest step of this start; 0: it has done none */
} launcher_beat;

typedef struct launcher_stall {
    double given_s; /* <= 0: the default limit */
    int ranks;
    double moved_at;                        /* when a rank last made progress */
    bool has_moved;                         /* some rank has made progress */
    double slowest_s;                       /* the slowest step of all ranks */
    launcher_beat beats[RANKS_BOARD_RANKS]; /* all 0: no report yet */
    unsigned char has_reported[RANKS_BOARD_RANKS];
} launcher_stall;

/* Begins a start of `ranks` ranks. given_s: seconds without progress that count as a stall; <= 0:
 * ten times the slowest step of this start, but at least 300 s; there is no limit before the first
 * step. */
void launcher_stall_begin(launcher_stall *stall, double given_s, int ranks);

/* Records the report of a rank, which arrived at `now`. The first report of a rank counts as
 * progress, even if it is all 0, and so does any change. Not to be called for programs that never
 * report anything. */
void launcher_stall_beat(launcher_stall *stall, int rank, const launcher_beat *beat, double now);

/* Returns the time at which the start counts as stalled if no rank makes progress before then.
 * Returns 0 if no rank has reported anything, or there is no limit yet. */
double launcher_stall_deadline(const launcher_stall *stall);

/* Returns the rank with the fewest steps, then micro-batches, then progress; -1 if all are equal. A
 * rank without a report is behind the others. */
int launcher_stall_behind(const launcher_stall *stall);
