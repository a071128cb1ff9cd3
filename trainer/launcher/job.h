/* One start: mpirun and the ranks below it. */
#pragma once

#include <signal.h>
#include <sys/types.h>

typedef struct launcher_rank {
    pid_t pid; /* 0: not seen yet */
    int fd;    /* pidfd; -1: not seen yet, or gone */
} launcher_rank;

typedef struct launcher_job {
    pid_t mpirun; /* 0: ended */
    int status;   /* mpirun's exit status, 128 + signal where one killed it */
    int ranks;
    int seen;       /* ranks whose process was found */
    int alive;      /* of these, not known to be gone */
    int launched;   /* mpirun has started ranks: they, or what they left behind, were seen */
    int first_gone; /* the rank that ended first; -1: none yet */
    launcher_rank *members; /* [ranks] */
} launcher_job;

/* Starts mpirun for `ranks` ranks of `program`. Signals are unblocked to `mask` in it, and it is
 * told to end the ranks should this process die. go_on: DCP_RUN_RESTART=1 is set for the ranks,
 * else it is unset. 0, or -1 after a message. */
int launcher_job_start(launcher_job *job, int ranks, char *const *program, const sigset_t *mask,
                       int go_on);

/* Looks for ranks not seen yet; they get `signal_new` at once where it is not 0. The number found.
 */
int launcher_job_find_ranks(launcher_job *job, int signal_new);

/* Takes note of a rank whose pidfd became readable: it ended. */
void launcher_job_rank_gone(launcher_job *job, int rank);

/* Collects children that ended; sets job->status and job->mpirun = 0 when mpirun did. */
void launcher_job_reap(launcher_job *job);

/* Sends a signal to every rank that lives. */
void launcher_job_signal_ranks(const launcher_job *job, int signal);

/* SIGKILL to what ended ranks have left running. mpirun waits for the ends of the ranks' output,
 * which such processes hold, and ends with the ranks' own status once they are gone. */
void launcher_job_kill_orphans(const launcher_job *job);

/* SIGKILL to whatever is left of the job, waits until it is gone, and frees. */
void launcher_job_clear(launcher_job *job);
