/* The agent of dcp-run's own host: started by a fork, ended, and replaced by dcp-run itself where
 * somebody has killed it. */
#pragma once

#include <sys/types.h>

#include "launcher/agent/agent.h"

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
