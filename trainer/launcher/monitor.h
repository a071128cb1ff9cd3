/* Watching a job until it ends, and passing signals on to it. */
#pragma once

#include <signal.h>

#include "launcher/job.h"

/* Signals to dcp-run itself, received through a descriptor between other events. */
typedef struct launcher_signals {
    int fd;
    sigset_t before; /* the mask that was found, for programs that are started */
} launcher_signals;

/* 0, or -1 with errno. */
int launcher_signals_open(launcher_signals *signals);

typedef struct launcher_result {
    int stop_asked; /* SIGTERM or SIGINT came */
    int killed;     /* the ranks did not end in time after that, or a second signal came */
} launcher_result;

/* Prints the start's line on stderr as soon as all ranks are there, or no more of them appear, and
 * returns when mpirun has ended. `start` counts from 1. What is left of the job is for
 * launcher_job_clear.
 */
launcher_result launcher_monitor_job(launcher_job *job, const launcher_signals *signals, int start,
                                     double grace_s);

/* Whether SIGTERM or SIGINT has come while no job was watched. */
int launcher_stop_pending(const launcher_signals *signals);
