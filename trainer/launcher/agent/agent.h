/* The agent: a process between dcp-run and the program that starts the ranks of a host (mpirun on
 * dcp-run's own host, elsewhere its daemon, such as orted). Each start has one agent per host. A
 * process that loses its parent becomes a child of the agent, its nearest subreaper. So the agent's
 * children are exactly the job on this host, and a pid that it kills cannot belong to another
 * process, because only the agent can reap it. It reports the ranks of its host to dcp-run, and
 * ends them on dcp-run's request, or as soon as the connection is lost for any reason. Then it
 * removes the job's folders and ends.
 *
 * Messages to dcp-run: hello {child, errno; from another host also key, names, vpid}, rank {rank,
 * pid, start}, gone {rank, told}, board {ranks: by launcher_board_pack, resumed}, launched, child
 * {status, waited}, stacks {text}, stuck {what}, clear {reason, told}, beat. Messages from dcp-run:
 * found, signal {signal}, save {number}, end_request {how, patient}, stacks {limit}, kill_ranks,
 * kill_orphans, kill_child, wake_child, end, beat. */
#pragma once

#include <stdbool.h>

#include "launcher/agent/channel.h"
#include "launcher/agent/folders.h"

/* A process that survives SIGKILL for longer than this is reported. The kernel needs its time to
 * end the others, so nobody gives up sooner. */
enum { LAUNCHER_PATIENCE_S = 5 };

/* Over a network, a side that has heard nothing for the lease has lost the other side. */
#define LAUNCHER_BEAT_S 0.5
#define LAUNCHER_LEASE_S 4.0

typedef struct launcher_agent_work {
    launcher_channel *channel;
    const launcher_folders *folders;
    const char *rank;        /* the variable that holds the number of a rank */
    double lease_s;          /* 0: on dcp-run's own host, where the end of the channel is enough */
    bool ends_with_child;    /* end when the child and the ranks have ended: the launcher waits for
                                that */
    json_t *hello;           /* members to add to the first message; NULL: none */
    void (*exec)(void *ctx); /* becomes the program, in a child; must not return */
    void *ctx;
} launcher_agent_work;

/* Opens /dev/null for each standard stream that is closed: otherwise the next file that is opened
 * would take its place, and get messages. */
void launcher_agent_open_streams(void);

/* Turns this process into the agent. Closes all other descriptors, except stderr if the lease is
 * set. */
_Noreturn void launcher_agent_run(const launcher_agent_work *work);
