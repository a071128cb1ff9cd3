/* How a tool runs on one rank or several, its argument CKPT, and its progress bar. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/comm.h>
#include <dcp/store.h>

/* How a tool runs on one rank or several, and its progress bar. */

/* A progress bar on stderr, shown only on a terminal and only after two seconds. */

typedef struct progress_bar {
    const char *what;
    double start_s, last_s;
    int on, shown;
} progress_bar;

void progress_bar_start(progress_bar *bar, const char *what);
void progress_bar_update(progress_bar *bar, uint64_t done, uint64_t total);
void progress_bar_end(progress_bar *bar);

/* A tool runs as one rank, or as several that share the work, until it ends or a signal requests
 * that it stop. Started by hand it is one rank and never touches MPI; started by a launcher
 * (mpirun, srun) it is one of several ranks. */

typedef struct launch {
    dcp_comm *comm;
    int rank, size;
    int mpi; /* whether MPI is initialized */
} launch;

/* Returns 0, or the exit status. */
int launch_start(launch *job);
void launch_end(launch *job);

/* After this call, SIGINT, SIGTERM and SIGHUP only make launch_is_stopped return true. For programs
 * that must clean up. A second signal ends the program. */
void launch_catch_signals(void);
/* Also usable as `stop` in libdcp's options. */
int launch_is_stopped(void *ctx);
/* Returns 0, or, if launch_is_stopped is true, prints a message and returns PROGRAM_FAILED. */
int launch_check_stopped(void);
/* The status to exit with: a failure after SIGTERM becomes PROGRAM_STOPPED. */
int launch_exit_status(int exit_status);

/* Returns the largest of all ranks' exit statuses. Collective. */
int launch_worst(const launch *job, int exit_status);
/* Sends buf[bytes] of rank 0 to all ranks. Collective. */
void launch_broadcast(const launch *job, void *buf, int bytes);
/* Joins buf[bytes] of all ranks on rank 0; each byte must be 0 on all ranks but one. Collective. */
void launch_collect(const launch *job, void *buf, uint64_t bytes);
/* Sums buf[n] over all ranks, on rank 0. Collective. */
void launch_sum(const launch *job, uint64_t *buf, int n);

/* The argument CKPT: a step's folder, or a checkpoint directory, which stands for its newest
 * complete step. */

/* The complete steps of a directory, ascending; the caller frees *out. Returns 0, or an exit status
 * after a message. */
int step_path_list(const char *dir, dcp_step **out, size_t *n);

/* Writes the path of the step's folder, which is `ckpt` or lies in it, to step[PATH_MAX]. Returns
 * 0, or the exit status. The folder may be damaged in any way. */
int step_path_find(const char *ckpt, char *step);

/* Returns 1 if the folder is a step's, judged by its name or its contents, 0 if not, or -1 with
 * errno if it could not be read. */
int step_path_is_step(const char *folder);

/* To be called after a failure of the newest step: reports on stderr which complete step of the
 * checkpoint directory `ckpt` precedes it. Does nothing if `ckpt` is a step itself or has no other
 * step. */
void step_path_note_older(const char *ckpt);
