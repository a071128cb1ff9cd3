/* Signals are blocked in all threads and waited for by one of their own, never handled: oneDNN's
 * products use the stack pointer as one more register that points into the heap, and there the
 * kernel would write the handler's frame. */
#include "step/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "programs/program.h"
#include "ranks/say.h"

enum { WATCHER_STACK = 1 << 17 };

static atomic_int asked_to_stop, asked_to_save; /* the former is the signal */
static sigset_t taken;                          /* by the watcher */

static _Noreturn void end_at_once(void) {
    signal(SIGINT, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &taken, NULL);
    for (;;) raise(SIGINT);
}

static void *watch_signals(void *unused) {
    int interrupts = 0, found;
    (void)unused;
    for (;;) {
        if (sigwait(&taken, &found) != 0) continue;
        if (found == SIGINT && interrupts++) end_at_once();
        atomic_store(found == SIGUSR1 ? &asked_to_save : &asked_to_stop, found);
        if (found == SIGINT)
            ranks_say(program_rank(),
                      "SIGINT: saving after this step; a second one ends the run at once");
    }
    return NULL;
}

int step_signals_hold(void) {
    static const int of_terminal[] = {SIGINT, SIGHUP};
    sigemptyset(&taken);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGUSR1);
    for (size_t i = 0; i < sizeof of_terminal / sizeof *of_terminal; i++) {
        struct sigaction found;
        if (sigaction(of_terminal[i], NULL, &found) == 0 && found.sa_handler != SIG_IGN)
            sigaddset(&taken, of_terminal[i]);
    }
    pthread_sigmask(SIG_BLOCK, &taken, NULL);

    pthread_t watcher;
    pthread_attr_t how;
    pthread_attr_init(&how);
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&how, WATCHER_STACK);
    const int failed = pthread_create(&watcher, &how, watch_signals, NULL);
    pthread_attr_destroy(&how);
    return failed;
}

step_signal_requests step_signals_take(MPI_Comm comm) {
    int asked[2] = {atomic_load(&asked_to_stop), atomic_exchange(&asked_to_save, 0)};
    MPI_Allreduce(MPI_IN_PLACE, asked, 2, MPI_INT, MPI_MAX, comm);
    return (step_signal_requests){.stop = asked[0], .save = asked[1]};
}

int step_signals_ask_to_stop(MPI_Comm comm) {
    int asked = atomic_load(&asked_to_stop) != 0;
    MPI_Allreduce(MPI_IN_PLACE, &asked, 1, MPI_INT, MPI_MAX, comm);
    return asked;
}
