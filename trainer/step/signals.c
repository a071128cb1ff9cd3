/* Signals are blocked and taken between steps, never handled: oneDNN's products use the stack
 * pointer as one more register that points into the heap, and there the kernel would write the
 * handler's frame. (A handler on an alternate stack would do as well.) */
#include "step/signals.h"

#include <signal.h>
#include <time.h>

static void set_of_requests(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGUSR1);
}

void step_signals_hold(void) {
    sigset_t set;
    set_of_requests(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL); /* training goes on when the reader of its lines is gone */
}

step_signal_requests step_signals_take(MPI_Comm comm) {
    static const struct timespec at_once = {0};
    int asked[2] = {0, 0};
    sigset_t set;
    set_of_requests(&set);
    for (int found; (found = sigtimedwait(&set, NULL, &at_once)) > 0;)
        asked[found == SIGTERM ? 0 : 1] = 1;
    MPI_Allreduce(MPI_IN_PLACE, asked, 2, MPI_INT, MPI_MAX, comm);
    return (step_signal_requests){.stop = asked[0], .save = asked[1]};
}

int step_signals_ask_to_stop(MPI_Comm comm) {
    sigset_t set;
    int asked = sigpending(&set) == 0 && sigismember(&set, SIGTERM) == 1;
    MPI_Allreduce(MPI_IN_PLACE, &asked, 1, MPI_INT, MPI_MAX, comm);
    return asked;
}
