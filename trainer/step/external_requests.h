/* Requests to the run, by signals or on dcp-run's board (ranks/board.h). SIGTERM, SIGINT and
 * SIGHUP: save and end. SIGUSR2: save, end, and be run again. SIGUSR1: save now and continue. A
 * second SIGINT ends the process immediately. A SIGTERM after the first SIGINT does not end it
 * immediately, because launchers send such a SIGTERM. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "ranks/board.h"

typedef struct step_requests {
    ranks_end_request end; /* the largest request that any rank received */
    int signal;            /* the signal that requested the end; 0 if the board did */
    bool save;             /* a signal requested a save */
    uint64_t saves;        /* the number of saves that the board has requested so far */
    int dropped;           /* with RANKS_END_RESIZE: the hosts that the next start leaves */
} step_requests;

/* Begins to catch these signals. SIGINT and SIGHUP are not caught if they are ignored, for example
 * because a shell has started the run in the background. Returns 0 or an errno code. Must be called
 * before MPI_Init, so threads that are created later block the same signals as this one. */
int step_requests_catch(void);

/* Collective. Returns the requests that any rank has received since the last call. A request may
 * reach some ranks later than others, or only one rank; all ranks act on it after the same step. */
step_requests step_requests_collect(MPI_Comm comm);

/* Collective. Returns true if any rank has received RANKS_END_STOP or RANKS_END_REQUEUE, which are
 * urgent, unlike RANKS_END_RESIZE. step_requests_collect still returns the request afterwards. */
bool step_requests_has_stop(MPI_Comm comm);

/* Collective, after try number `tries` to open files, the first of which is number 1. Returns true
 * if the ranks should try again: `status` is DCP_ERR_BUSY on rank 0, because of another process
 * that may still let go (`why`), fewer than `grace` seconds have passed since `begin` (MPI_Wtime),
 * and no rank has been asked to end. After the first try, rank 0 logs what is waited for. */
bool step_requests_allow_wait(MPI_Comm comm, int tries, int status, double begin, double grace,
                              const char *why);
