/* The handlers set flags, which is all that a handler may do; they are the one state of the program
 * that belongs to no object, because a handler gets no argument. */
#include "signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t stop_asked, save_asked;

static void handle(int number) {
    if (number == SIGTERM)
        stop_asked = 1;
    else
        save_asked = 1;
}

void signals_install(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL); /* a reader of our lines that leaves ends no training */
}

signal_requests signals_take(MPI_Comm comm) {
    int asked[2] = {stop_asked, save_asked};
    save_asked = 0;
    MPI_Allreduce(MPI_IN_PLACE, asked, 2, MPI_INT, MPI_MAX, comm);
    return (signal_requests){.stop = asked[0], .save = asked[1]};
}
