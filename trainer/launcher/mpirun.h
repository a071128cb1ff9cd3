/* The command that starts the ranks of a start: mpirun, Slurm's part in it, and the program that
 * mpirun starts in the place of ssh. */
#pragma once

#include <signal.h>
#include <stdbool.h>

#include "launcher/agent/folders.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/link.h"
#include "launcher/logs.h"

/* Slurm, if dcp-run runs in a job. dcp-run queries Slurm by Slurm's own programs. */

/* Checks, before the first start in a job, whether processes can be started on its other nodes, if
 * it has any. Returns 0, or PROGRAM_FAILED after a message: srun or scontrol is missing, or no
 * controller answers. */
int launcher_slurm_check(void);

/* Sets what mpirun's srun requires, in the process that becomes mpirun. Does nothing outside of a
 * job. */
void launcher_slurm_set_environment(void);

/* Returns true if Slurm takes the nodes of this job away to run it another time: it is preempted,
 * or already in the queue again. Returns false outside of a job, if no controller answers within 2
 * s, and after scancel or a time limit. To be called at a SIGTERM, and when a SIGTERM has ended the
 * ranks.
 */
bool launcher_slurm_is_preempted(void);

/* `dcp-run shell AGENT ARGS`: what Open MPI starts instead of AGENT, which is ssh or another
 * program that runs a command on another host. It writes the key of the start to AGENT's stdin, for
 * the agent of that host (agent/remote.h): everybody can read a command line, but not a pipe. */

/* Returns only after a message, with an exit status. */
int launcher_shell_main(int argc, char **argv);
/* Does the same for `dcp-run start agent ARGS -- AGENT -- HOST COMMAND`, which MPICH starts instead
 * of `AGENT HOST COMMAND`: HOST is to run `dcp-run agent ARGS COMMAND`. */
int launcher_shell_start_main(int argc, char **argv);

/* The command. mpirun starts agents on other hosts by ssh, or by srun in a Slurm job. family.c has
 * the names of its options. */

typedef struct launcher_command {
    const launcher_family *family;
    const launcher_placement *placement;
    const launcher_listener *listener; /* NULL: all ranks are on this host */
    const launcher_folders *folders;
    char *const *program;
    const char *mark;
    const sigset_t *mask;          /* of signals, for mpirun and what it starts */
    const launcher_output *output; /* where its output goes; NULL: to dcp-run's own streams */
    char *starter_words;           /* the value of the family's variable; NULL: none */
    char **argv;                   /* made by launcher_mpirun_prepare */
    size_t n_options;              /* words of argv before the program */
} launcher_command;

/* Makes argv and starter_words, and a host file in the first folder. Returns 0, or -1 after a
 * message. */
int launcher_mpirun_prepare(launcher_command *command);
/* Removes the program from argv, so only mpirun and its options remain. */
void launcher_mpirun_forget_program(launcher_command *command);
/* Frees argv; NULL is allowed. */
void launcher_mpirun_free(char **argv);
/* Returns true if mpirun refuses these options, whatever it is to start: it does not know one of
 * them.
 */
bool launcher_mpirun_refuses(char *const *argv);
/* Becomes mpirun, in a child of the agent. `command` is a launcher_command. */
void launcher_mpirun_exec(void *command);
