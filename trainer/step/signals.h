/* Requests from outside: SIGTERM asks to save and end, SIGUSR1 to save now and go on. */
#pragma once

#include <mpi.h>

typedef struct step_signal_requests {
    int stop, save;
} step_signal_requests;

/* Holds the signals back from now on. Called before MPI_Init: until then they end the process, and
 * threads that are made later hold back what this one does. */
void step_signals_hold(void);

/* Collective: what any rank was asked since the last call. A request reaches some ranks before
 * others, or only one; all of them act on it after the same step. */
step_signal_requests step_signals_take(MPI_Comm comm);

/* Collective: whether any rank is asked to stop; step_signals_take still finds it. */
int step_signals_ask_to_stop(MPI_Comm comm);
