/* Requests from outside: SIGTERM, SIGINT and SIGHUP ask to save and end, SIGUSR1 to save now and go
 * on. A second SIGINT ends the process at once; a SIGTERM after the first, as launchers send one,
 * does not. */
#pragma once

#include <mpi.h>

typedef struct step_signal_requests {
    int stop; /* the signal that asked; 0: none did */
    int save;
} step_signal_requests;

/* Takes these signals from now on; SIGINT not where it is ignored, as in a shell's background. 0,
 * or errno's code. Called before MPI_Init: threads that are made later hold back what this one
 * does. */
int step_signals_hold(void);

/* Collective: what any rank was asked since the last call. A request reaches some ranks before
 * others, or only one; all of them act on it after the same step. */
step_signal_requests step_signals_take(MPI_Comm comm);

/* Collective: whether any rank is asked to stop; step_signals_take still finds it. */
int step_signals_ask_to_stop(MPI_Comm comm);
