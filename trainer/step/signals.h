/* Requests from outside, by signals or on dcp-run's board: SIGTERM, SIGINT and SIGHUP ask to save
 * and end, SIGUSR2 to do so and be run again, SIGUSR1 to save now and go on. A second SIGINT ends
 * the process at once; a SIGTERM after the first, as launchers send one, does not. */
#pragma once

#include <mpi.h>
#include <stdint.h>

#include "ranks/board.h"

typedef struct step_signal_requests {
    ranks_end_request end; /* the largest that any rank was asked */
    int signal;            /* that asked for the end; 0: the board did */
    int save;              /* a signal asked for a save */
    uint64_t saves;        /* how many saves the board has asked for so far */
} step_signal_requests;

/* Takes these signals from now on; SIGINT not where it is ignored, as in a shell's background. 0,
 * or errno's code. Called before MPI_Init: threads that are made later hold back what this one
 * does. */
int step_signals_hold(void);

/* Collective: what any rank was asked since the last call. A request reaches some ranks before
 * others, or only one; all of them act on it after the same step. */
step_signal_requests step_signals_take(MPI_Comm comm);

/* Collective: whether any rank is asked to stop or to be run again, which is urgent;
 * step_signals_take still finds it. */
int step_signals_ask_to_stop(MPI_Comm comm);
