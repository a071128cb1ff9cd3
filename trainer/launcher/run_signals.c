#include "launcher/run_signals.h"

#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

int launcher_signals_is_stop(int signal) {
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

int launcher_signals_open(launcher_signals *signals) {
    /* SIGPIPE: who reads what we say may be gone, and the run is not to end of that */
    static const int wanted[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct sigaction found;
        sigaction(wanted[i], NULL, &found);
        /* nohup and shells that start in the background ignore signals for us: stay so */
        if (found.sa_handler != SIG_IGN) sigaddset(&set, wanted[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* ignored, children could not be waited for */
    if (sigprocmask(SIG_BLOCK, &set, &signals->before) != 0) return -1;
    signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd < 0 ? -1 : 0;
}

int launcher_signals_next(const launcher_signals *signals) {
    struct signalfd_siginfo info;
    return read(signals->fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}
