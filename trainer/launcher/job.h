/* One start: a guard, mpirun below it, and the ranks below that. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "launcher/folders.h"
#include "launcher/guard.h"

typedef struct launcher_rank {
    pid_t pid; /* 0: not seen yet */
    int fd;    /* pidfd; -1: not seen yet, or gone */
} launcher_rank;

typedef struct launcher_job {
    launcher_guard guard;
    launcher_folders folders;
    pid_t mpirun; /* 0: ended */
    int status;   /* mpirun's exit status, 128 + signal where one killed it */
    int ranks;
    int seen;               /* ranks whose process was found */
    int alive;              /* of these, not known to be gone */
    int launched;           /* mpirun has started ranks */
    int first_gone;         /* the rank that ended first; -1: none yet */
    launcher_rank *members; /* [ranks] */
} launcher_job;

/* Starts mpirun for `ranks` ranks of `program`. Signals are unblocked to `mask` in it. go_on:
 * DCP_RUN_RESTART=1 is set for the ranks, else it is unset. 0, or -1 after a message. */
int launcher_job_start(launcher_job *job, int ranks, char *const *program, const sigset_t *mask,
                       int go_on);

/* Looks for ranks not seen yet; they get `signal_new` at once where it is not 0. The number found.
 */
int launcher_job_find_ranks(launcher_job *job, int signal_new);

/* Takes note of a rank whose pidfd became readable: it ended. */
void launcher_job_rank_gone(launcher_job *job, int rank);

/* Takes the guard's news, if there are any: sets job->status and job->mpirun = 0 when mpirun has
 * ended. */
void launcher_job_hear(launcher_job *job);

/* Sends a signal to every rank that lives. */
void launcher_job_signal_ranks(const launcher_job *job, int signal);

/* SIGKILL to whatever is left of the job, waits until it is gone, and frees. 0, or -1 where
 * something of it lives on after `limit_s`, after a message that says what. */
int launcher_job_clear(launcher_job *job, double limit_s);
