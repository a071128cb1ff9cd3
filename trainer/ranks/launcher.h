/* dcp-run, as seen by ranks that it has started: what it tells them through their environment, and
 * what they report through files that it has made in memory: one for reasons, and the board
 * (board.h). Without dcp-run nothing is read or reported. */
#pragma once

#include <dcp/error.h>

/* How long to wait for ranks of an earlier start (DCP_RUN_GRACE); 0: not at all. */
double ranks_launcher_grace_s(void);

/* Returns true if an earlier start has published a step from which this one continues
 * (DCP_RUN_RESTART). */
int ranks_launcher_goes_on(void);

/* Returns true if all processes of an earlier start are known to have ended (DCP_RUN_TAKE_OVER). */
int ranks_launcher_takes_over(void);

/* Returns true if the previous start has failed and reported `why` (DCP_RUN_FAILED). */
int ranks_launcher_failed_for(const char *why);

/* The columns of the terminal to which this dcp-run forwards the ranks' stdout (DCP_RUN_TERMINAL);
 * 0 if it is not a terminal. */
int ranks_launcher_columns(void);

enum { RANKS_NAME_BYTES = 17 }; /* the size of a run's name: 16 hexadecimal digits, and NUL */

/* This dcp-run's name (DCP_RUN_NAME); "" if there is none. */
void ranks_launcher_name(char name[RANKS_NAME_BYTES]);

/* A rank's first and last call: they announce that it will report its exit status, and report it. A
 * status that no rank has reported comes from the launcher or from MPI. */
void ranks_launcher_begin(void);
void ranks_launcher_end(int status);

/* Returns true if mpirun or another launcher started this process. Uses the variables as they were
 * at ranks_launcher_begin, because MPI_Init sets them in any case. */
int ranks_launcher_is_there(void);

/* Returns DCP_ERR_ARG if dcp-run (DCP_RUN_RANKS) or a launcher has started this process as one of
 * several (srun without PMI, the mpirun of another MPI, torchrun), but MPI knows only this one:
 * each process would train alone, all in one directory. world: the number of ranks that MPI knows.
 * *rank: this process's rank by the launcher's count; rank 0 prints the message. */
int ranks_launcher_check_world(int world, int *rank, dcp_error *err);

/* Reports the reason of a failure, which must be the run's only one: a restart would only repeat
 * it. `why` must have the same words each time. Only rank 0 reports. */
void ranks_launcher_tell(int rank, const char *why);
/* Reports like ranks_launcher_tell that a restart would do harm: none is attempted. */
void ranks_launcher_tell_final(int rank, const char *why);
