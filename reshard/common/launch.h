/* How a tool runs on one rank or several, its argument CKPT, and its progress bar. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/comm.h>
#include <dcp/store.h>

/* How a tool runs on one rank or several, and its progress bar. */

/* A progress bar on stderr, on a terminal only, once two seconds have passed. */

typedef struct progress_bar {
    const char *what;
    double start_s, last_s;
    int on, shown;
} progress_bar;

void progress_bar_start(progress_bar *bar, const char *what);
void progress_bar_update(progress_bar *bar, uint64_t done, uint64_t total);
void progress_bar_end(progress_bar *bar);

/* How a tool runs: as one rank or as several that share the work, until it ends or a signal asks it
 * to. Started by hand it is one rank and never touches MPI; started by a launcher (mpirun, srun) it
 * is a rank of several. */

typedef struct launch {
    dcp_comm *comm;
    int rank, size;
    int mpi; /* MPI is initialised */
} launch;

/* 0, or the status to exit with. */
int launch_start(launch *job);
void launch_end(launch *job);

/* From now on SIGINT, SIGTERM and SIGHUP only make launch_is_stopped true: for programs that have
 * to clean up what they began. A second signal ends the program. */
void launch_catch_signals(void);
/* Also as `stop` of libdcp's options. */
int launch_is_stopped(void *ctx);
/* 0; or, where it is true, says so and returns PROGRAM_FAILED. */
int launch_check_stopped(void);
/* What to end with: a failure after SIGTERM becomes PROGRAM_STOPPED. */
int launch_exit_status(int exit_status);

/* Collective: the largest of the ranks' exit statuses. */
int launch_worst(const launch *job, int exit_status);
/* Collective: buf[bytes] of rank 0 to all. */
void launch_broadcast(const launch *job, void *buf, int bytes);
/* Collective: joins buf[bytes] of all ranks on rank 0; each byte must be 0 on all ranks but one. */
void launch_collect(const launch *job, void *buf, uint64_t bytes);
/* Collective: buf[n] added up on rank 0. */
void launch_sum(const launch *job, uint64_t *buf, int n);

/* A CKPT argument: a step's folder, or a checkpoint directory, meaning its newest complete step. */

/* The complete steps of a directory, ascending; *out is the caller's to free. 0, or an exit status
 * after a message. */
int step_path_list(const char *dir, dcp_step **out, size_t *n);

/* The path of the step's folder, which is `ckpt` or lies in it, into step[PATH_MAX]. 0, or the
 * status to exit with. The folder may be damaged in any way. */
int step_path_find(const char *ckpt, char *step);

/* Whether a folder is a step's, by its name or by what is in it; -1 with errno: it could not be
 * looked into. */
int step_path_is_step(const char *folder);

/* For a failure of the newest step: says on stderr which complete step of the checkpoint directory
 * `ckpt` comes before it. Says nothing where `ckpt` is a step itself or holds no other one. */
void step_path_note_older(const char *ckpt);
