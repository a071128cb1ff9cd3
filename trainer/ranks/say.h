/* Lines for people on stderr, from rank 0 alone. */
#pragma once

#include <dcp/error.h>

/* "dcp-train: ..."; nothing on other ranks. */
void ranks_say(int rank, const char *fmt, ...) DCP_PRINTF(2, 3);
/* "dcp-train: warning: ..." */
void ranks_warn(int rank, const char *fmt, ...) DCP_PRINTF(2, 3);

/* A dcp_log_fn. libdcp calls it on rank 0 only. */
void ranks_log(void *ctx, dcp_log_level level, const char *line);
