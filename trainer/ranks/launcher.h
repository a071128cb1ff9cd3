/* The ranks' side of dcp-run. dcp-run passes information to the ranks that it starts through their
 * environment. The ranks report through two files that dcp-run has made in memory: the board
 * (board.h), and a file that holds the reason for a failure. Without dcp-run nothing is read or
 * reported. */
#pragma once

#include <dcp/error.h>
#include <stdbool.h>

/* Returns how many seconds to wait for a store that a killed run still holds (DCP_RUN_GRACE); 0: do
 * not wait. */
double ranks_launcher_grace_s(void);

/* Returns true if an earlier start has published a step from which this one continues
 * (DCP_RUN_RESTART). */
bool ranks_launcher_continues(void);

/* Returns true if all processes of an earlier start are known to have ended (DCP_RUN_TAKE_OVER). */
bool ranks_launcher_takes_over(void);

/* Returns true if the previous start has failed and reported `why` (DCP_RUN_FAILED). */
bool ranks_launcher_failed_for(const char *why);

/* Returns the usable columns of the terminal to which dcp-run forwards the ranks' stdout
 * (DCP_RUN_TERMINAL); 0 if dcp-run's stdout is not a terminal. */
int ranks_launcher_columns(void);

enum { RANKS_NAME_BYTES = 17 }; /* the size of a run's name: 16 hexadecimal digits, and NUL */

/* Fills in the name that dcp-run has given the run (DCP_RUN_NAME); "" if there is none. */
void ranks_launcher_name(char name[RANKS_NAME_BYTES]);

/* The first and the last call of a rank: ranks_launcher_begin announces that the rank will report
 * its exit status, and ranks_launcher_end reports it. An exit status that no rank has reported
 * comes from the launcher or from MPI. */
void ranks_launcher_begin(void);
void ranks_launcher_end(int status);

/* Returns the exit status of a start that fails with `status`, one of libdcp's, before it trains.
 * dcp-run tries no restart after PROGRAM_USAGE and PROGRAM_DIFFERS. What may pass, such as an error
 * of a disk, a server or the network, is PROGRAM_FAILED. So is a lock if all processes of an
 * earlier start have ended: a file server may keep the locks of a host that this start has lost. */
int ranks_launcher_exit_status(int status);

/* Returns true if mpirun or another launcher started this process. Uses the environment as it was
 * at ranks_launcher_begin, because MPI_Init sets the variables of a launcher even if there is
 * none. */
bool ranks_launcher_is_present(void);

/* Checks that MPI knows all processes that were started together. Returns DCP_ERR_ARG if dcp-run
 * (DCP_RUN_RANKS) or another launcher started this process as one of several, but MPI knows only
 * this one. This happens with srun without PMI, the mpirun of another MPI, and torchrun. Each
 * process would train alone, and all would use one directory. world: the number of ranks that MPI
 * knows. *rank: this process's rank according to the launcher; only rank 0 prints the message. */
int ranks_launcher_check_world(int world, int *rank, dcp_error *err);

/* Reports the reason for a failure that a restart would probably repeat. To be called at most once
 * per start. `why` must have the same words each time, so that dcp-run recognizes it. Only rank 0
 * reports. */
void ranks_launcher_report(int rank, const char *why);
/* Reports the reason for a failure after which a restart would do harm, so dcp-run attempts none.
 * Otherwise like ranks_launcher_report. */
void ranks_launcher_report_final(int rank, const char *why);
