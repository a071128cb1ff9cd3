/* Ranks without MPI: threads of the test, or processes that are forked from it, which may be
 * killed. They talk through memory that they share, over dcp_comm_from_ops; each is on a host of
 * its own. */
#pragma once

#include <stddef.h>

#include "dcp/comm.h"

#define RANKS_MOST 4

typedef struct ranks ranks;

/* What a rank does. `comm` is destroyed by the caller. */
typedef void (*ranks_main)(int rank, dcp_comm *comm, void *ctx);

/* For n <= RANKS_MOST ranks, and `bytes` of zeros that all of them share, with what started them.
 */
ranks *ranks_make(int n, size_t bytes);
void *ranks_shared(ranks *r);
void ranks_free(ranks *r);

/* Returns when all have returned. */
void ranks_run_threads(ranks *r, ranks_main body, void *ctx);

/* The same as processes. 1: one of them was killed, and the others then, so that none waits for it.
 * Where one exits with a failure, so does this process. */
int ranks_run_processes(ranks *r, ranks_main body, void *ctx);

/* Waits for all other ranks, apart from all communicators. */
void ranks_meet(ranks *r);
