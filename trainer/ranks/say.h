/* Lines for people from rank 0, and agreement of all ranks on one status. */
#pragma once

#include <mpi.h>

#include <dcp/error.h>

/* Lines for people on stderr, from rank 0 alone, and a bar beside them. */

/* "dcp-train: ..."; nothing on other ranks. */
void ranks_say(int rank, const char *fmt, ...) DCP_PRINTF(2, 3);
/* "dcp-train: warning: ..." */
void ranks_warn(int rank, const char *fmt, ...) DCP_PRINTF(2, 3);

/* A bar on the terminal that stdout is, drawn over the one before. Any line above takes it away,
 * and so does clear; leave goes to the next line after it. */
void ranks_bar_draw(const char *text);
void ranks_bar_clear(void);
void ranks_bar_leave(void);

/* A dcp_log_fn. libdcp calls it on rank 0 only. */
void ranks_log(void *ctx, dcp_log_level level, const char *line);

/* Agreement of all ranks on one status. Collective rule: a local failure never returns between two
 * collectives; it is passed to agree, and the ranks go on only where that returns DCP_OK. */

/* Collective: each rank passes its own status and the error that it filled where it failed. All
 * return the status and the message of the lowest rank that failed, which the message names unless
 * all failed. */
int ranks_agree(MPI_Comm comm, int status, dcp_error *err);
