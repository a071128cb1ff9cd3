/* Signals are blocked in all threads, and one thread waits for them. There are no signal handlers,
 * because oneDNN's matrix products use the stack pointer as an additional register. During such a
 * product, the stack pointer may point into the heap, and the kernel would write a handler's frame
 * there. */
#include "step/external_requests.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "programs/program.h"
#include "ranks/log.h"

enum { WATCHER_STACK = 1 << 17 };

enum { SIGNALS = 1 << 8 }; /* more than there are signals */

/* asked_to_end: the request * SIGNALS + the signal, so the larger of two requests wins */
static atomic_int asked_to_end, asked_to_save;
static sigset_t taken; /* the signals that the watcher waits for */

static _Noreturn void end_at_once(void) {
    signal(SIGINT, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &taken, NULL);
    for (;;) raise(SIGINT);
}

/* Records a request to end. Called only by the watcher. */
static void request_end(int found) {
    const ranks_end_request request = found == SIGUSR2 ? RANKS_END_REQUEUE : RANKS_END_STOP;
    const int asked = (int)request * SIGNALS + found;
    if (asked > atomic_load(&asked_to_end)) atomic_store(&asked_to_end, asked);
}

static void *watch_signals(void *unused) {
    int interrupts = 0, found;
    (void)unused;
    for (;;) {
        if (sigwait(&taken, &found) != 0) continue;
        if (found == SIGINT && interrupts++) end_at_once();
        if (found == SIGUSR1)
            atomic_store(&asked_to_save, 1);
        else
            request_end(found);
        if (found == SIGINT)
            ranks_info(program_rank(),
                       "SIGINT: saving after this step; a second one ends the run at once");
    }
    return NULL;
}

int step_requests_catch(void) {
    static const int of_terminal[] = {SIGINT, SIGHUP};
    sigemptyset(&taken);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGUSR1);
    sigaddset(&taken, SIGUSR2);
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

/* Returns the largest request to end that this rank has received, by a signal or on the board
 * (ranks/board.h), in the form of asked_to_end. */
static int own_end(void) {
    const int by_signal = atomic_load(&asked_to_end);
    const int by_board = (int)ranks_board_end_requested() * SIGNALS;
    return by_signal > by_board ? by_signal : by_board;
}

step_requests step_requests_collect(MPI_Comm comm) {
    const uint64_t end = (uint64_t)own_end(); /* first: the board gets the number of hosts before */
    uint64_t asked[] = {end, (uint64_t)atomic_exchange(&asked_to_save, 0),
                        ranks_board_saves_requested(), ranks_board_hosts_dropped()};
    MPI_Allreduce(MPI_IN_PLACE, asked, 4, MPI_UINT64_T, MPI_MAX, comm);
    return (step_requests){.end = (ranks_end_request)(asked[0] / SIGNALS),
                           .signal = (int)(asked[0] % SIGNALS),
                           .save = asked[1] != 0,
                           .saves = asked[2],
                           .dropped = (int)asked[3]};
}

bool step_requests_has_stop(MPI_Comm comm) {
    int asked = own_end() >= RANKS_END_STOP * SIGNALS;
    MPI_Allreduce(MPI_IN_PLACE, &asked, 1, MPI_INT, MPI_MAX, comm);
    return asked;
}

bool step_requests_allow_wait(MPI_Comm comm, int tries, int status, double begin, double grace,
                              const char *why) {
    int rank, again = status == DCP_ERR_BUSY && MPI_Wtime() < begin + grace;
    MPI_Bcast(&again, 1, MPI_INT, 0, comm);
    if (!again || step_requests_has_stop(comm)) return false;
    MPI_Comm_rank(comm, &rank);
    if (tries == 1)
        ranks_info(rank, "waiting for up to %g s (dcp-run --grace), because %s", grace, why);
    return true;
}
