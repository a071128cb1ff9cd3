/* The command with which a start's ranks are started: mpirun, which starts agents on other hosts by
 * ssh, or by srun in a Slurm job. */
#pragma once

#include <signal.h>

#include "launcher/agent/folders.h"
#include "launcher/hosts/cluster.h"
#include "launcher/listener.h"

typedef struct launcher_command {
    const launcher_placement *placement;
    const launcher_listener *listener; /* NULL: all ranks are on this host */
    const launcher_folders *folders;
    char *const *program;
    int tag_output; /* each line of output names its rank */
    const char *mark;
    const sigset_t *mask; /* of signals, for mpirun and what it starts */
    int out, err;         /* where its output goes; -1: where ours goes */
    char **argv;          /* made by launcher_mpirun_prepare */
} launcher_command;

/* Makes argv, and a host file in the first folder. 0, or -1 after a message. */
int launcher_mpirun_prepare(launcher_command *command);
void launcher_mpirun_free(launcher_command *command);
/* In a child of the agent: becomes mpirun. `command` is a launcher_command. */
void launcher_mpirun_exec(void *command);
