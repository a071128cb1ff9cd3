/* Messages from rank 0 to the user, and the agreement of all ranks on one status. */
#pragma once

#include <mpi.h>

#include <dcp/error.h>

/* Messages to the user on stderr, and a progress bar on stdout. Only rank 0 prints them. */

/* Prints "dcp-train: ..."; does nothing on other ranks. */
void ranks_info(int rank, const char *fmt, ...) DCP_PRINTF(2, 3);
/* Prints "dcp-train: warning: ..." */
void ranks_warn(int rank, const char *fmt, ...) DCP_PRINTF(2, 3);

/* ranks_bar_draw draws a progress bar on the terminal that is stdout, over the previous bar.
 * ranks_bar_clear removes the bar, and so do ranks_info and ranks_warn before they print.
 * ranks_bar_finish leaves the bar on the screen and moves to the next line. */
void ranks_bar_draw(const char *text);
void ranks_bar_clear(void);
void ranks_bar_finish(void);

/* A dcp_log_fn. libdcp calls it only on rank 0. */
void ranks_log(void *ctx, dcp_log_level level, const char *line);

/* Rule for collective calls: a rank with a local failure never returns between two collective
 * calls. It passes its failure to ranks_agree, and the ranks continue only if ranks_agree returns
 * DCP_OK. */

/* Collective. Each rank passes its status and, if it failed, the error that it filled in. All ranks
 * return the status and the message of the lowest rank that failed. The message names that rank
 * unless all failed. */
int ranks_agree(MPI_Comm comm, int status, dcp_error *err);
