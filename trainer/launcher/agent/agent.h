/* The agent: a process between dcp-run and what starts the ranks of a host (mpirun where dcp-run
 * is, else orted), one for each start and host. What a rank starts loses its parents to the agent
 * alone, so that the agent's children are the job on this host, all of it and nothing else, and a
 * pid that it kills can be nobody else's, because only the agent can reap it. It tells dcp-run of
 * the ranks here, ends them when dcp-run asks for that, and at once when it has lost dcp-run,
 * however that happened; then it removes the job's folders, and ends.
 *
 * Messages to dcp-run: hello {child, errno; of another host: key, names, vpid}, rank {rank, pid,
 * start}, gone {rank, told}, board {ranks: launcher_board_pack's, resumed}, launched, child
 * {status, waited}, stacks {text}, stuck {what}, clear {reason, told}, beat. Messages from it:
 * found, signal {signal}, save {number}, end_request {how}, stacks {limit}, kill_ranks,
 * kill_orphans, kill_child, wake_child, end, beat. */
#pragma once

#include "launcher/agent/channel.h"
#include "launcher/agent/folders.h"

/* What has SIGKILL for longer than this is told of. The kernel needs its time to end the others, so
 * that nobody gives up sooner. */
enum { LAUNCHER_PATIENCE_S = 5 };

/* Over a network: who hears nothing of the other side for the lease has lost it. */
#define LAUNCHER_BEAT_S 0.5
#define LAUNCHER_LEASE_S 4.0

typedef struct launcher_agent_work {
    launcher_channel *channel; /* to dcp-run */
    const launcher_folders *folders;
    const char *rank;        /* the variable by which a rank is known */
    double lease_s;          /* 0: the channel's end is enough, as on one host */
    int ends_with_child;     /* its end is what the launcher waits for when the ranks have ended */
    json_t *hello;           /* what else to say in the first message; NULL: nothing */
    void (*exec)(void *ctx); /* in a child; must not return */
    void *ctx;
} launcher_agent_work;

/* This process becomes the agent; all its other descriptors are closed, but for stderr where the
 * lease is set. */
_Noreturn void launcher_agent_run(const launcher_agent_work *work);
