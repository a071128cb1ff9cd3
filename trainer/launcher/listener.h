/* Where agents of other hosts find dcp-run: a TCP port on all addresses of this host. */
#pragma once

#include <stddef.h>

#include "launcher/agent/remote.h"

typedef struct launcher_listener {
    int fd; /* -1: none */
    int port;
    char key[LAUNCHER_KEY_BYTES + 1]; /* what an agent of this start must say first */
    char addresses[1024];             /* of this host but loopback ones, by commas */
} launcher_listener;

/* 0, or -1 after a message. */
int launcher_listener_open(launcher_listener *listener);
void launcher_listener_close(launcher_listener *listener);
/* The descriptor of the next connection; -1: there is none. */
int launcher_listener_accept(const launcher_listener *listener);
