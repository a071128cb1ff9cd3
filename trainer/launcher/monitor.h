/* Watching a job until it ends, and answering requests meanwhile. */
#pragma once

#include "launcher/job.h"
#include "launcher/run.h"

/* Answers to `dcp-run ctl`. */

/* What requests ask of the start that is under way, as flags. */
enum { LAUNCHER_ASKED_RESIZE = 1, LAUNCHER_ASKED_STOP = 2 };

/* Answers them that it has failed. */
void launcher_requests_refused(launcher_run *run, const char *why);

/* Watching a job until it ends, and passing requests and signals on to it. */

typedef struct launcher_result {
    int stop_asked; /* by a signal or by ctl */
    int requeue;    /* the run is to be run again by a scheduler */
    int planned;    /* it was asked to end, to start again on other ranks or hosts */
    int killed;     /* the ranks did not end in time after that, or a second signal came */
    int stalled;    /* no rank made progress any more */
    int behind;     /* of these, the rank that is behind the others; -1: none */
    int no_answer;  /* some hosts' agents did not come */
} launcher_result;

/* Prints the start's line on stderr as soon as all ranks are there, or no more of them appear, and
 * returns when mpirun has ended, or what is left of the job has no use. That is for
 * launcher_job_clear. */
launcher_result launcher_monitor_job(launcher_run *run, launcher_job *job);

/* Between two starts: takes signals and requests for so long. Whether to stop; *requeue as above.
 */
int launcher_monitor_pause(launcher_run *run, double seconds, int *requeue);
