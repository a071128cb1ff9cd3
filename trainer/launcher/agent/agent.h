/* The agent: a process between dcp-run and the program that starts the ranks of a host (mpirun on
 * dcp-run's own host, elsewhere its daemon, such as orted). Each start has one agent per host. A
 * process that loses its parent becomes a child of the agent, its nearest subreaper. So the job on
 * this host consists of exactly the agent's descendants. The agent never kills an unrelated process
 * that has reused the pid of an ended process: the pid of its own child stays reserved until the
 * agent reaps that child, and the agent kills other processes through pidfds
 * (launcher_processes_open). The agent informs dcp-run about the ranks of its host. It ends them on
 * dcp-run's request, or as soon as the connection is lost for any reason; then it removes the job's
 * folders and ends.
 *
 * Messages to dcp-run: hello {child, errno; from another host also key, host, node, daemon, place},
 * rank {rank, pid, start}, gone {rank, told}, board {ranks: by launcher_board_pack, resumed},
 * launched, child {status, waited}, stacks {text}, stuck {what}, clear {reason, told}, beat.
 * Messages from dcp-run: found, signal {signal}, save {number}, end_request {how, dropped,
 * patient}, stacks {limit}, kill_ranks, kill_orphans, kill_child, wake_child, end, beat. */
#pragma once

#include <stdbool.h>

#include "launcher/agent/channel.h"
#include "launcher/agent/folders.h"

/* A process that survives SIGKILL for longer than this is reported. The kernel may need some time
 * to end a process, so dcp-run does not give up before then. */
enum { LAUNCHER_PATIENCE_S = 5 };

/* Over a network, both sides send heartbeats about every LAUNCHER_BEAT_S seconds. A side that has
 * received nothing for LAUNCHER_LEASE_S seconds regards the other side as lost. */
#define LAUNCHER_BEAT_S 0.5
#define LAUNCHER_LEASE_S 4.0

typedef struct launcher_agent_work {
    launcher_channel *channel;
    const launcher_folders *folders;
    const char *rank;     /* the variable that holds the number of a rank */
    double lease_s;       /* 0: none; on dcp-run's own host the channel's end is enough */
    bool ends_with_child; /* end after the child and the ranks, because the launcher waits for the
                             agent's end */
    json_t *hello;        /* members to add to the first message; NULL: none */
    void (*exec)(void *ctx); /* becomes the program, in a child; must not return */
    void *ctx;
} launcher_agent_work;

/* Opens /dev/null for each standard stream that is closed: otherwise the next file that is opened
 * would get its descriptor, and receive the messages meant for the stream. */
void launcher_agent_open_streams(void);

/* Turns this process into the agent. Closes all descriptors that the agent does not use; stderr
 * remains only if lease_s is not 0. */
_Noreturn void launcher_agent_run(const launcher_agent_work *work);
