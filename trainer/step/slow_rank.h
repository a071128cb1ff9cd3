/* When a run tells that saves wait for a slow rank: once, as long as it stays slow. */
#pragma once

#include <dcp/save.h>

enum { STEP_SLOW_SAVES = 2, STEP_SLOW_QUIET = 10 };

/* All 0 at first. */
typedef struct step_slow {
    int rank;  /* that was slow last */
    int saves; /* in which it was, one after the other */
    int quiet; /* saves since then without a slow rank */
    int told;
} step_slow;

/* Takes the report of a save. Whether its slow rank is to be told of now: it has been the slow one
 * in STEP_SLOW_SAVES saves after each other, so that a moment's load says nothing, and was not told
 * of since nobody was slow in STEP_SLOW_QUIET saves. */
int step_slow_note(step_slow *s, const dcp_report *report);
