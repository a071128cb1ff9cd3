/* Connections to agents: dcp-run's end of one, where agents of other hosts find it, and the agent
 * of its own host. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "launcher/agent/agent.h"
#include "launcher/agent/channel.h"
#include "launcher/agent/remote.h"

/* dcp-run's end of the connection to an agent. */

typedef enum launcher_link_state {
    LAUNCHER_LINK_NEW, /* connected, has not said who it is */
    LAUNCHER_LINK_UP,
    LAUNCHER_LINK_CLEAR, /* nothing of the job is left on its host */
    LAUNCHER_LINK_LOST   /* not known what lives there */
} launcher_link_state;

typedef struct launcher_link {
    launcher_channel channel;
    launcher_link_state state;
    const char *host;   /* as the placement names it; NULL: not known yet */
    int is_remote;      /* heartbeats are exchanged */
    int is_told;        /* as lost */
    double heard, said; /* when */
} launcher_link;

void launcher_link_open(launcher_link *link, int fd, int is_remote);
void launcher_link_close(launcher_link *link);
/* Sends `message`, which is freed. */
void launcher_link_send(launcher_link *link, json_t *message);
/* Sends a heartbeat where one is due, and what could not be sent before. */
void launcher_link_keep(launcher_link *link);
/* The next message; NULL: none now. A link whose agent is gone, or silent for the lease, becomes
 * lost, unless it was clear. */
json_t *launcher_link_next(launcher_link *link);
/* Until when what a lost agent has started may live, by program_now_s: it ends that itself once it
 * has heard nothing for the lease. */
double launcher_link_safe_at(const launcher_link *link);

/* Where agents of other hosts find dcp-run: a TCP port on all addresses of this host. */

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

/* The agent of dcp-run's own host: started by a fork, ended, and replaced by dcp-run itself where
 * somebody has killed it. */

typedef struct launcher_guard {
    pid_t pid;
    char mark[20]; /* in the value of DCP_RUN_JOB of all that the job starts */
} launcher_guard;

/* Names the job, for what `exec` puts into the environment. */
void launcher_guard_name(launcher_guard *guard);
/* Starts the agent, and in a child of it `exec`, which must not return. `rank` is the variable by
 * which ranks are known. The agent keeps the folders' locks and none of this process' other
 * descriptors. 0, or -1 with errno. */
int launcher_guard_start(launcher_guard *guard, launcher_channel *channel,
                         const launcher_folders *folders, const char *rank, void (*exec)(void *ctx),
                         void *ctx);
/* Lets it go on, should somebody have stopped it. */
void launcher_guard_wake(const launcher_guard *guard);
/* Once its channel has ended: waits for its end, and kills what it has left where it was killed
 * itself. 0, or -1 where something lives on after `end`, by program_now_s. */
int launcher_guard_clear(launcher_guard *guard, double end);
