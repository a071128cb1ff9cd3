/* What a restart costs: how long each part took, and how many steps are computed again. */
#pragma once

#include <stdint.h>

#include "launcher/job.h"

typedef struct launcher_recovery {
    /* of the last failure or planned restart, by program_now_s; 0: not yet */
    double alive_at; /* the last sign of life of what failed */
    double noticed_at, ended_at;
    double reached_at[RANKS_PHASE_STEPPED + 1]; /* by all ranks */
    int64_t step;                               /* that the start before had done; -1: not known */
    int is_noticed;                             /* that the start under way ends */
    int start;                                  /* that is under way, from 1 */
    /* of the run */
    int failures, planned;
    int64_t steps_lost;
    double seconds_lost;
} launcher_recovery;

/* A start ends, which was noticed at `noticed`: at `alive_at` all was well; 0: just before. */
void launcher_recovery_notice(launcher_recovery *recovery, double alive_at, double noticed,
                              int is_planned);
/* All that it had started is gone. */
void launcher_recovery_ended(launcher_recovery *recovery, const launcher_job *job);
/* A start that ended before anybody noticed a failure, as where a host does not answer, has failed
 * when it had ended. */
void launcher_recovery_begin(launcher_recovery *recovery, int start);
/* Takes note of the phases that all ranks have reached; prints the restart's line once the first
 * step is done. Whether it is. */
int launcher_recovery_look(launcher_recovery *recovery, const launcher_job *job);
/* The summary of the run, where it was ever restarted. */
void launcher_recovery_sum_up(const launcher_recovery *recovery);
