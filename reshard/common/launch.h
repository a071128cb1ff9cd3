/* Functions that start a tool on one rank or several, find the step that its argument CKPT names,
 * and show its progress. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/comm.h>
#include <dcp/store.h>

/* Functions that start a tool on one rank or several, and show its progress. */

/* A progress bar on stderr, shown only on a terminal and only after two seconds. */

typedef struct progress_bar {
    const char *what;
    double start_s, last_s;
    bool on, shown;
} progress_bar;

void progress_bar_start(progress_bar *bar, const char *what);
void progress_bar_update(progress_bar *bar, uint64_t done, uint64_t total);
void progress_bar_end(progress_bar *bar);

/* A tool runs as one rank, or as several ranks that share the work. A process that is started by
 * hand is the only rank and does not use MPI. A process that a launcher (mpirun, srun) starts is
 * one of the launcher's ranks. A signal can stop a tool. */

typedef struct launch {
    dcp_comm *comm;
    int rank, size;
    bool mpi; /* whether MPI is initialized */
} launch;

/* Returns 0, or the exit status. */
int launch_start(launch *job);
void launch_end(launch *job);

/* After this call, the first SIGINT, SIGTERM or SIGHUP only makes launch_is_stopped return true, so
 * that the program can clean up. A second signal ends the program. */
void launch_catch_signals(void);
/* Can be passed as `stop` in libdcp's options. */
int launch_is_stopped(void *ctx);
/* Returns 0. If launch_is_stopped is true, prints a message and returns PROGRAM_FAILED. */
int launch_check_stopped(void);
/* Returns the status with which to exit: a failure after SIGTERM becomes PROGRAM_STOPPED. */
int launch_exit_status(int exit_status);

/* Returns the largest of all ranks' exit statuses. Collective. */
int launch_worst(const launch *job, int exit_status);
/* Sends buf[bytes] of rank 0 to all ranks. Collective. */
void launch_broadcast(const launch *job, void *buf, int bytes);
/* Joins buf[bytes] of all ranks on rank 0. Each byte must be 0 on all ranks except at most one.
 * Collective. */
void launch_collect(const launch *job, void *buf, uint64_t bytes);
/* Replaces buf[n] on rank 0 by the sum over all ranks. Collective. */
void launch_sum(const launch *job, uint64_t *buf, int n);

/* The argument CKPT is a step's folder, or a checkpoint directory, which stands for its newest
 * complete step. */

/* Lists the complete steps of a directory in ascending order. The caller frees *out. Returns 0, or
 * an exit status after a message. */
int step_path_list(const char *dir, dcp_step **out, size_t *n);

/* Writes to step[PATH_MAX] the path of the step's folder, which is `ckpt` itself or lies in it.
 * Returns 0, or the exit status. Finds a step even if it is damaged in any way. */
int step_path_find(const char *ckpt, char *step);

/* Returns 1 if the folder has the name or the contents of a step, 0 if it has neither, or -1 with
 * errno if it could not be read. */
int step_path_is_step(const char *folder);

/* Call it if the newest step could not be used: reports on stderr which complete step of the
 * checkpoint directory `ckpt` precedes the newest one. Does nothing if `ckpt` itself is a step, or
 * has no other step. */
void step_path_note_older(const char *ckpt);
