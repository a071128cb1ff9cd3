/* The command with which a start's ranks are started: mpirun, which starts agents on other hosts by
 * ssh, or by srun in a Slurm job. What its options are called is in family.c. */
#pragma once

#include <signal.h>

#include "launcher/agent/folders.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/listener.h"

typedef struct launcher_command {
    const launcher_family *family;
    const launcher_placement *placement;
    const launcher_listener *listener; /* NULL: all ranks are on this host */
    const launcher_folders *folders;
    char *const *program;
    int tag_output; /* each line of output names its rank */
    const char *mark;
    const sigset_t *mask; /* of signals, for mpirun and what it starts */
    int out, err;         /* where its output goes; -1: where ours goes */
    char *starter_words;  /* the value of the family's variable; NULL: none */
    char **argv;          /* made by launcher_mpirun_prepare */
    size_t n_options;     /* words of it before the program */
} launcher_command;

/* Makes argv and starter_words, and a host file in the first folder. 0, or -1 after a message. */
int launcher_mpirun_prepare(launcher_command *command);
/* Leaves mpirun and its options in argv, without the program. */
void launcher_mpirun_forget_program(launcher_command *command);
/* Of argv; NULL is none. */
void launcher_mpirun_free(char **argv);
/* Whether mpirun takes none of this, whatever it is to start: it does not know an option. */
int launcher_mpirun_refuses(char *const *argv);
/* In a child of the agent: becomes mpirun. `command` is a launcher_command. */
void launcher_mpirun_exec(void *command);
