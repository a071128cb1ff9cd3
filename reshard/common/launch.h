/* How a tool runs: as one rank or as several that share the work, until it ends or a signal asks it
 * to. Started by hand it is one rank and never touches MPI; started by a launcher (mpirun, srun) it
 * is a rank of several. */
#pragma once

#include <dcp/comm.h>

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
