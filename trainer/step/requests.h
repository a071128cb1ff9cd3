/* Requests from outside, by signals or on dcp-run's board. SIGTERM, SIGINT and SIGHUP request to
 * save and end; SIGUSR2 to save, end and be run again; SIGUSR1 to save now and continue. A second
 * SIGINT ends the process immediately; a SIGTERM after the first, which launchers send, does
 * not. */
#pragma once

#include <mpi.h>
#include <stdint.h>

#include "ranks/board.h"

typedef struct step_requests {
    ranks_end_request end; /* the largest that any rank received */
    int signal;            /* that requested the end; 0 if the board did */
    int save;              /* a signal requested a save */
    uint64_t saves;        /* the number of saves that the board has requested so far */
} step_requests;

/* Begins to catch these signals; SIGINT and SIGHUP only if they are not ignored, as in a shell's
 * background. Returns 0 or an errno code. Must be called before MPI_Init, so threads that are
 * created later block the same signals as this one. */
int step_requests_catch(void);

/* Collective. Returns what any rank was requested to do since the last call. A request reaches some
 * ranks before others, or only one; all of them act on it after the same step. */
step_requests step_requests_collect(MPI_Comm comm);

/* Collective. Returns true if any rank has the urgent request to stop or to be run again.
 * step_requests_collect still returns it. */
int step_requests_has_stop(MPI_Comm comm);
