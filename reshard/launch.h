/* One rank or several: a program started by hand is one rank and never touches MPI; one started by
 * a launcher (mpirun, srun) shares the work with its peers. */
#ifndef RESHARD_LAUNCH_H
#define RESHARD_LAUNCH_H

#include "dcp/comm.h"

typedef struct launch {
    dcp_comm *comm;
    int rank, size;
    int mpi; /* MPI is initialised */
} launch;

/* The rank that the launcher's variables name; 0 without a launcher. Works before launch_start. */
int launch_env_rank(void);

/* 0, or the status to exit with. */
int launch_start(launch *job);
void launch_end(launch *job);

/* Collective: the largest of the ranks' exit statuses. */
int launch_worst(const launch *job, int exit_status);
/* Collective: buf[bytes] of rank 0 to all. */
void launch_broadcast(const launch *job, void *buf, int bytes);
/* Collective: buf[bytes] of all ranks joined on rank 0, where each byte is 0 on all ranks but one.
 */
void launch_collect(const launch *job, void *buf, uint64_t bytes);
/* Collective: buf[n] added up on rank 0. */
void launch_sum(const launch *job, uint64_t *buf, int n);

#endif
