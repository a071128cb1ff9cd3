/* The records of a run and of its present start. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "launcher/budget.h"
#include "launcher/control/control.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/job.h"
#include "launcher/options.h"
#include "launcher/stall.h"

/* Signals to dcp-run itself, received through a descriptor. */
typedef struct launcher_signals {
    int fd;
    sigset_t before; /* the mask that dcp-run was started with, for programs that it starts */
} launcher_signals;

/* Returns 0, or -1 with errno. */
int launcher_signals_open(launcher_signals *signals);
/* Returns the next signal that has arrived, or 0. */
int launcher_signals_next(const launcher_signals *signals);
/* Returns true for SIGTERM, SIGINT and SIGHUP. */
bool launcher_signals_is_stop(int signal);

/* What the present start is doing:
 *     BETWEEN -> STARTING -> RUNNING
 *     STARTING, RUNNING -> STALLED -> FAILED
 *     STARTING, RUNNING -> FAILED
 *     any -> BETWEEN     when mpirun has ended; from FAILED also if it does not end soon
 * A request to end does not change the phase; launcher_start.end_request records it. */
typedef enum launcher_phase {
    LAUNCHER_BETWEEN,  /* no start is under way, or dcp-run has stopped waiting for its mpirun */
    LAUNCHER_STARTING, /* not all ranks have appeared */
    LAUNCHER_RUNNING,  /* all ranks have appeared */
    LAUNCHER_STALLED,  /* no rank makes progress; all ranks' stacks are being collected */
    LAUNCHER_FAILED,   /* the ranks have been killed; mpirun may still pass on their output */
    LAUNCHER_PHASES
} launcher_phase;

/* Times at which something is due. */
typedef enum launcher_deadline {
    LAUNCHER_DUE_NONE,
    LAUNCHER_DUE_APPEARED, /* the end of the wait for ranks that have not appeared */
    LAUNCHER_DUE_ANSWER,   /* the agents of all hosts must have connected */
    LAUNCHER_DUE_STALL,    /* a rank must have made progress */
    LAUNCHER_DUE_STACKS,   /* the end of the wait for stacks */
    LAUNCHER_DUE_HOSTS,    /* the next check of the host file */
    LAUNCHER_DUE_KILL,     /* ranks that were asked to end are killed */
    LAUNCHER_DUE_LINGER,   /* processes that have outlived all ranks are killed */
    LAUNCHER_DUE_DRAINED,  /* the end of the wait for mpirun after a failure */
    LAUNCHER_DUE_NEXT,     /* the next start */
    LAUNCHER_DEADLINES
} launcher_deadline;

/* One start of the ranks, from launcher_cluster_place until nothing of it is left. */
typedef struct launcher_start {
    int number; /* counted from 1 */
    launcher_phase phase;
    ranks_end_request end_request; /* the request to end that the ranks have received; if several,
                                      the largest by the order of the enum */
    bool handed_over;    /* RANKS_END_RESIZE was requested, perhaps before a larger request; for a
                            resize, the ranks save to a fast store, so the newest step may exist
                            only in memory */
    bool spares_ranks;   /* a requeue was requested; the next signal to stop kills no ranks */
    bool is_announced;   /* the start's line has been printed */
    bool is_killed;      /* the ranks did not end in time, or there was a second signal */
    bool orphans_killed; /* the processes that the ranks left running were killed */
    bool has_stalled;
    int behind;       /* after a stall: the rank that is behind the others; -1: none */
    int n_appeared;   /* ranks that had appeared at the last check */
    bool is_planned;  /* the previous start ended on request (RANKS_END_RESIZE), so that the run can
                         continue with a different set of ranks */
    int ranks_before; /* if is_planned, the number of ranks of the previous start; otherwise 0 */
    uint64_t saves_requested;
    double due[LAUNCHER_DEADLINES]; /* by program_now_s; 0: not set */
    int status;                     /* after the end: PROGRAM_DONE or another PROGRAM_ status */
    launcher_placement placement;
    launcher_job job;
    launcher_stall stall;
} launcher_start;

/* The cost of restarts: how long each part of a restart took, and how many steps are computed
 * again. */
typedef struct launcher_recovery {
    /* Times of the last failure or planned restart (program_now_s); 0: not yet. */
    double alive_at; /* the last sign of life of the rank or host that failed */
    double noticed_at, ended_at;
    double reached_at[RANKS_PHASE_STEPPED + 1]; /* for each phase, when all ranks had reached it */
    int64_t step;    /* the last step of the previous start; -1: unknown */
    bool is_noticed; /* the end of the present start has been noticed */
    /* Sums over the whole run. */
    int failures, planned;
    int64_t steps_lost;
    double seconds_lost;
} launcher_recovery;

enum { LAUNCHER_WAITING_CLIENTS = 64 };

/* A request whose answer has to wait. */
typedef struct launcher_waiting {
    uint64_t client;
    uint64_t save;      /* the number of the requested save; 0: the request is a resize */
    int start;          /* the number of the start in which the request arrived */
    uint64_t published; /* `published` in rank 0's report (ranks/board.h) when the request came; 0
                           if it came between two starts */
    bool tells; /* ranks report to dcp-run, so those of the next start will report their first step
                 */
} launcher_waiting;

/* What all starts of a run have in common, and the present start. Between two starts, `start` is
 * the start that has ended. */
typedef struct launcher_run {
    const launcher_options *options;
    const launcher_family *family; /* of mpirun */
    launcher_signals signals;
    launcher_cluster *cluster;
    launcher_control *control; /* NULL: none */
    launcher_budget budget;
    launcher_recovery recovery;
    launcher_start start;
    char reason_before[LAUNCHER_REASON]; /* why the previous start failed */
    bool has_trained;                    /* some start has done a step */
    ranks_end_request repeat_next; /* the request to end that is repeated to the next start, because
                                      the last start's ranks had already saved for a resize when it
                                      came, or refused the number of ranks; RANKS_END_NONE: none */
    launcher_waiting waiting[LAUNCHER_WAITING_CLIENTS];
    int n_waiting;
} launcher_run;

/* Sets a deadline `seconds` from now. */
void launcher_start_set_due(launcher_start *start, launcher_deadline deadline, double seconds);

/* The cost of restarts. */

/* Returns true once all ranks of the present start have done a step. */
bool launcher_recovery_has_stepped(const launcher_recovery *recovery);
/* Records that the end of the present start was noticed at the time `noticed`. alive_at: the last
 * time at which the start was known to be working; 0: the same as `noticed`. Only the first call
 * for a start counts. */
void launcher_recovery_notice(launcher_run *run, double alive_at, double noticed, bool is_planned);
/* Records that nothing of the present start is left. */
void launcher_recovery_ended(launcher_run *run);
/* Prepares for the present start, which is about to begin. */
void launcher_recovery_begin(launcher_run *run);
/* Records the phases that all ranks have reached, and prints the restart's line after the first
 * step. Returns launcher_recovery_has_stepped. */
bool launcher_recovery_update(launcher_run *run);
/* Prints the summary of the run if there was a restart. */
void launcher_recovery_summarize(const launcher_run *run);

/* The events of a run (monitor.c). */

/* Handles the events of the present start, until its phase is LAUNCHER_BETWEEN: mpirun has ended,
 * or dcp-run has stopped waiting for it. The job must have been started. Prints the start's line on
 * stderr. The caller clears away what is left of the job (launcher_job_clear). */
void launcher_monitor_start(launcher_run *run);

/* Handles signals and requests between two starts for `seconds`, or until the run is asked to end.
 * Returns true in the second case; start.end_request is then RANKS_END_STOP or
 * RANKS_END_REQUEUE. */
bool launcher_monitor_pause(launcher_run *run, double seconds);
