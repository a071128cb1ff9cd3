/* Signals to dcp-run itself, received through a descriptor between other events. */
#pragma once

#include <signal.h>

typedef struct launcher_signals {
    int fd;
    sigset_t before; /* the mask that was found, for programs that are started */
} launcher_signals;

/* 0, or -1 with errno. */
int launcher_signals_open(launcher_signals *signals);
/* The next signal that has come; 0: none. */
int launcher_signals_next(const launcher_signals *signals);
/* Whether it asks for the end: SIGTERM, SIGINT, SIGHUP. */
int launcher_signals_is_stop(int signal);
