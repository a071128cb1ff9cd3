/* Lines for people from rank 0, and the agreement of all ranks on one status. */
#pragma once

#include <mpi.h>

#include <dcp/error.h>

/* Lines for people on stderr, printed only by rank 0, and a bar beside them. */

/* Prints "dcp-train: ..."; does nothing on other ranks. */
void ranks_say(int rank, const char *fmt, ...) DCP_PRINTF(2, 3);
/* Prints "dcp-train: warning: ..." */
void ranks_warn(int rank, const char *fmt, ...) DCP_PRINTF(2, 3);

/* A bar on the terminal of stdout, drawn over the previous one. Any line above removes it, and so
 * does ranks_bar_clear; ranks_bar_leave moves to the line below it. */
void ranks_bar_draw(const char *text);
void ranks_bar_clear(void);
void ranks_bar_leave(void);

/* A dcp_log_fn. libdcp calls it only on rank 0. */
void ranks_log(void *ctx, dcp_log_level level, const char *line);

/* Rule for collective calls: a rank with a local failure never returns between two collective
 * calls. It passes its failure to ranks_agree, and the ranks continue only if that returns
 * DCP_OK. */

/* Collective. Each rank passes its status and, if it failed, the error that it filled. All ranks
 * return the status and the message of the lowest rank that failed. The message names that rank
 * unless all failed. */
int ranks_agree(MPI_Comm comm, int status, dcp_error *err);
