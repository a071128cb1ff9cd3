/* The command that starts the ranks of a start: mpirun, Slurm's part in it, and the program that
 * mpirun starts in place of ssh. */
#pragma once

#include <signal.h>
#include <stdbool.h>

#include "launcher/agent/folders.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/link.h"
#include "launcher/logs.h"

/* Slurm, if dcp-run runs in a Slurm job. dcp-run queries Slurm through Slurm's own programs. */

/* Checks whether processes can be started on the other nodes of the Slurm job, if there are other
 * nodes. To be called before the first start. Returns 0, or PROGRAM_FAILED after a message if srun
 * or scontrol is missing, or if no controller answers. */
int launcher_slurm_check(void);

/* Sets the environment variables that srun requires when mpirun starts it. To be called in the
 * process that becomes mpirun. Does nothing outside of a job. */
void launcher_slurm_set_environment(void);

/* Returns true if Slurm takes the nodes of this job away and will run the job again later: the job
 * is being preempted, or is already in the queue again. Returns false outside of a job, if no
 * controller answers within 2 s, and after scancel or a time limit. To be called when dcp-run
 * receives SIGTERM, and when SIGTERM has ended the ranks. */
bool launcher_slurm_is_preempted(void);

/* `dcp-run shell AGENT ARGS`: the command that Open MPI runs in place of `AGENT ARGS`. AGENT is ssh
 * or another program that runs a command on another host. `dcp-run shell` writes the start's key to
 * AGENT's stdin, and AGENT forwards it to dcp-run's agent on that host (agent/remote.h). The key is
 * not on a command line, because every user of the host can read command lines. */

/* Becomes AGENT. Returns only if that fails: an exit status, after a message. */
int launcher_shell_main(int argc, char **argv);
/* Does the same for `dcp-run start agent ARGS -- AGENT -- HOST COMMAND`, which MPICH runs in place
 * of `AGENT HOST COMMAND`. So HOST runs `dcp-run agent ARGS COMMAND`. */
int launcher_shell_start_main(int argc, char **argv);

/* The command line of mpirun. mpirun starts agents on other hosts by ssh, or by srun in a Slurm
 * job. family.c has the names of mpirun's options. */

typedef struct launcher_command {
    const launcher_family *family;
    const launcher_placement *placement;
    const launcher_listener *listener; /* NULL: all ranks are on this host */
    const launcher_folders *folders;
    char *const *program;
    const char *mark;
    const sigset_t *mask;          /* the signal mask for mpirun and what it starts */
    const launcher_output *output; /* where mpirun's output goes; NULL: to dcp-run's streams */
    char *starter_words;           /* the value of family->remote->starter_words; NULL: none */
    char **argv;                   /* made by launcher_mpirun_prepare */
    size_t n_options;              /* the number of words of argv before the program */
} launcher_command;

/* Makes argv and starter_words, and a host file in the first folder. Returns 0, or -1 after a
 * message. */
int launcher_mpirun_prepare(launcher_command *command);
/* Removes the program from argv, so only mpirun and its options remain. */
void launcher_mpirun_remove_program(launcher_command *command);
/* Frees argv; NULL is allowed. */
void launcher_mpirun_free(char **argv);
/* Returns true if mpirun rejects these options, because it does not know one of them. */
bool launcher_mpirun_refuses(char *const *argv);
/* Becomes mpirun, in a child of the agent. `command` is a launcher_command. */
void launcher_mpirun_exec(void *command);
