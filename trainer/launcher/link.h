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
    LAUNCHER_LINK_LOST   /* processes of the job may still be alive on its host */
} launcher_link_state;

typedef struct launcher_link {
    launcher_channel channel;
    launcher_link_state state;
    const char *host;            /* the host's name in the placement; NULL: not known yet */
    bool is_remote;              /* the agent is on another host: heartbeats are exchanged */
    bool loss_is_reported;       /* its loss has been reported */
    double received_at, sent_at; /* when a message was last received, and sent */
} launcher_link;

void launcher_link_open(launcher_link *link, int fd, bool is_remote);
void launcher_link_close(launcher_link *link);
/* Sends `message`, which is freed. */
void launcher_link_send(launcher_link *link, json_t *message);
/* Sends a heartbeat if one is due, and any messages that could not be sent before. */
void launcher_link_maintain(launcher_link *link);
/* Returns the next message; NULL: none now. If the agent is gone, or has been silent for
 * LAUNCHER_LEASE_S, the link becomes lost, unless it was clear. */
json_t *launcher_link_next(launcher_link *link);
/* Returns the time (program_now_s) until which processes of a lost agent may still be alive: the
 * agent kills them when it has received nothing for LAUNCHER_LEASE_S. Returns 0 if the link is not
 * lost, or the agent is on this host. */
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

/* The guard: the agent of dcp-run's own host, which is a fork of dcp-run. If somebody kills the
 * guard, dcp-run itself ends the job in its place. */

typedef struct launcher_guard {
    pid_t pid;
    char mark[20]; /* the job's name; DCP_RUN_JOB contains it in all processes of the job */
} launcher_guard;

/* Chooses the job's name, guard->mark. The `exec` of launcher_guard_start must add it to
 * DCP_RUN_JOB. */
void launcher_guard_name(launcher_guard *guard);
/* Starts the agent, which calls `exec` in a child; `exec` must not return. `rank` names the
 * variable that holds the number of a rank. The only descriptors of dcp-run that the agent retains
 * are the folders' locks. Returns 0, or -1 with errno. */
int launcher_guard_start(launcher_guard *guard, launcher_channel *channel,
                         const launcher_folders *folders, const char *rank, void (*exec)(void *ctx),
                         void *ctx);
/* Wakes the agent if somebody has stopped it. */
void launcher_guard_wake(const launcher_guard *guard);
/* Waits until the agent has ended. To be called after the end of its channel. If the agent was
 * killed, kills what is left of the job. Returns 0, or -1 if something is still alive at the time
 * `end` (program_now_s). */
int launcher_guard_clear(launcher_guard *guard, double end);
