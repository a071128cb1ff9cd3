/* A run: what all of its starts have in common. */
#pragma once

#include <signal.h>
#include <stdint.h>

#include "launcher/budget.h"
#include "launcher/control/control.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/job.h"
#include "launcher/logs.h"
#include "launcher/options.h"

/* Signals to dcp-run itself, received through a descriptor between other events. */

typedef struct launcher_signals {
    int fd;
    sigset_t before; /* the mask that was found, for programs that are started */
} launcher_signals;

/* 0, or -1 with errno. */
int launcher_signals_open(launcher_signals *signals);
/* The next signal that has come; 0: none. */
int launcher_signals_next(const launcher_signals *signals);
/* Whether it asks for the end: SIGTERM, SIGINT, SIGHUP. */
int launcher_signals_is_stop(int signal);

/* What a restart costs: how long each part took, and how many steps are computed again. */

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

/* A run: all that its starts have in common. */

enum { LAUNCHER_WAITING = 64 };

/* A request whose answer has to wait. */
typedef struct launcher_waiting {
    uint64_t client;
    uint64_t save;      /* number of the save that it asked for; 0: a resize */
    int start;          /* that was under way */
    uint64_t published; /* what rank 0 told of its last save then */
    int tells; /* the ranks told something at that time: they will tell of their first step */
} launcher_waiting;

typedef struct launcher_run {
    const launcher_options *options;
    const launcher_family *family; /* of mpirun */
    launcher_signals signals;
    launcher_cluster *cluster;
    launcher_control *control; /* NULL: none */
    launcher_output *output;   /* of the start that is under way, for --logs; NULL: none */
    launcher_budget budget;
    launcher_recovery recovery;
    launcher_told told;
    int start;            /* that is under way, from 1 */
    int ranks_before;     /* of the start before a planned one; 0: none is to go back to */
    int was_planned;      /* the end of the start before it */
    int has_trained;      /* some start has done a step */
    int requeue_asked;    /* of the start before it, too late: this one is to save and end */
    uint64_t saves_asked; /* of the start that is under way */
    launcher_waiting waiting[LAUNCHER_WAITING];
    int n_waiting;
} launcher_run;
