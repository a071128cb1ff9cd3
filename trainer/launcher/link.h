/* Connections to agents: dcp-run's end of a connection, the port for agents of other hosts, and the
 * agent of dcp-run's own host. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "launcher/agent/agent.h"
#include "launcher/agent/channel.h"
#include "launcher/agent/remote.h"

/* dcp-run's end of the connection to an agent. */

typedef enum launcher_link_state {
    LAUNCHER_LINK_NEW, /* connected, but not identified yet */
    LAUNCHER_LINK_UP,
    LAUNCHER_LINK_CLEAR, /* nothing of the job is left on its host */
    LAUNCHER_LINK_LOST   /* it is not known what is alive there */
} launcher_link_state;

typedef struct launcher_link {
    launcher_channel channel;
    launcher_link_state state;
    const char *host;   /* by its name in the placement; NULL: not known yet */
    bool is_remote;     /* heartbeats are exchanged */
    bool is_told;       /* its loss has been reported */
    double heard, said; /* times of the last messages */
} launcher_link;

void launcher_link_open(launcher_link *link, int fd, bool is_remote);
void launcher_link_close(launcher_link *link);
/* Sends `message`, which is freed. */
void launcher_link_send(launcher_link *link, json_t *message);
/* Sends a heartbeat if one is due, and what could not be sent before. */
void launcher_link_keep(launcher_link *link);
/* Returns the next message; NULL: none now. If the agent is gone, or silent for the lease, the link
 * becomes lost, unless it was clear. */
json_t *launcher_link_next(launcher_link *link);
/* Returns until when processes of a lost agent may live, by program_now_s: the agent kills them
 * when it has heard nothing for the lease. 0: not lost, or on this host. */
double launcher_link_safe_at(const launcher_link *link);

/* The port for agents of other hosts: TCP, on all addresses of this host. */

typedef struct launcher_listener {
    int fd; /* -1: none */
    int port;
    char key[LAUNCHER_KEY_BYTES + 1]; /* what an agent of this start must send first */
    char addresses[1024]; /* this host's addresses except loopback ones, separated by commas */
} launcher_listener;

/* Returns 0, or -1 after a message. */
int launcher_listener_open(launcher_listener *listener);
void launcher_listener_close(launcher_listener *listener);
/* Returns the descriptor of the next connection; -1: none. */
int launcher_listener_accept(const launcher_listener *listener);

/* The agent of dcp-run's own host, the guard: a fork of dcp-run. If somebody kills it, dcp-run
 * itself takes its place. */

typedef struct launcher_guard {
    pid_t pid;
    char mark[20]; /* in the value of DCP_RUN_JOB of all processes of the job */
} launcher_guard;

/* Names the job; `exec` puts the name into the environment. */
void launcher_guard_name(launcher_guard *guard);
/* Starts the agent, and, in a child of it, `exec`, which must not return. `rank` is the variable
 * that holds the number of a rank. The agent inherits only the folders' locks. Returns 0, or -1
 * with errno. */
int launcher_guard_start(launcher_guard *guard, launcher_channel *channel,
                         const launcher_folders *folders, const char *rank, void (*exec)(void *ctx),
                         void *ctx);
/* Wakes the agent if somebody has stopped it. */
void launcher_guard_wake(const launcher_guard *guard);
/* Waits for the agent's end, after its channel has ended; if the agent was killed, kills what it
 * has left. Returns 0, or -1 if something is still alive after `end`, by program_now_s. */
int launcher_guard_clear(launcher_guard *guard, double end);
