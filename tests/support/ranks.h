/* Ranks without MPI: threads of the test, or processes that are forked from it and may be killed.
 * They communicate through shared memory with dcp_comm_from_ops; each is on a host of its own. */
#pragma once

#include <stddef.h>

#include "dcp/comm.h"

#define RANKS_MOST 4

typedef struct ranks ranks;

/* What a rank does. The caller destroys `comm`. */
typedef void (*ranks_main)(int rank, dcp_comm *comm, void *ctx);

/* Makes n <= RANKS_MOST ranks, and `bytes` bytes of zeros that all of them share with the process
 * that started them. */
ranks *ranks_make(int n, size_t bytes);
void *ranks_shared(ranks *r);
void ranks_free(ranks *r);

/* Runs the ranks as threads. Returns after all have returned. */
void ranks_run_threads(ranks *r, ranks_main body, void *ctx);

/* Runs the ranks as processes. Returns 1 if one of them was killed; the others are then killed,
 * too, so none waits for it. If one exits with a failure, this process does, too. */
int ranks_run_processes(ranks *r, ranks_main body, void *ctx);

/* Waits for all other ranks, independently of all communicators. */
void ranks_meet(ranks *r);
