/* dcp-run, for ranks that it has started: what it tells them by their environment, and what they
 * tell it by files that it has made in memory: one for reasons, and the board (board.h). Without
 * dcp-run nothing is asked for, or told. */
#pragma once

#include <dcp/error.h>

/* How long to wait for ranks of an earlier start (DCP_RUN_GRACE); 0: not at all. */
double ranks_launcher_grace_s(void);

/* Whether this start goes on where an earlier one has published a step (DCP_RUN_RESTART). */
int ranks_launcher_goes_on(void);

/* Whether all processes of an earlier start are known to have ended (DCP_RUN_TAKE_OVER). */
int ranks_launcher_takes_over(void);

/* Whether the start before this one has failed, and told `why` (DCP_RUN_FAILED). */
int ranks_launcher_failed_for(const char *why);

/* Columns of the terminal to which this dcp-run passes the ranks' stdout on (DCP_RUN_TERMINAL); 0:
 * it goes elsewhere. */
int ranks_launcher_columns(void);

enum { RANKS_NAME_BYTES = 17 }; /* of a run's name: 16 hexadecimal digits, and NUL */

/* The name that this dcp-run has (DCP_RUN_NAME); "" without one. */
void ranks_launcher_name(char name[RANKS_NAME_BYTES]);

/* First and last call of a rank: that it will tell its exit status, and that. A status that no rank
 * has told is the launcher's own, or MPI's. */
void ranks_launcher_begin(void);
void ranks_launcher_end(int status);

/* Whether mpirun or its like started this process. MPI_Init sets the variables that tell it in any
 * case, so this is how they were at the first call. */
int ranks_launcher_is_there(void);

/* DCP_ERR_ARG where dcp-run (DCP_RUN_RANKS) or a launcher has started this process as one of
 * several (srun without PMI, the mpirun of another MPI, torchrun) and MPI knows of none but it:
 * each would train by itself, all in one directory. `world`: the ranks that MPI knows. The message
 * is rank 0's to print, by the launcher's count, which *rank gets. */
int ranks_launcher_check_world(int world, int *rank, dcp_error *err);

/* Of a failure, the only one of the run: a restart would only repeat it. `why` must be the same
 * words each time. Rank 0 tells, others do nothing. */
void ranks_launcher_tell(int rank, const char *why);
/* The same where a restart would do harm: none is tried. */
void ranks_launcher_tell_final(int rank, const char *why);
