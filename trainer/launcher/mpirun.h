/* The command that starts a start's ranks: mpirun, Slurm's part in it, and what Open MPI starts in
 * place of ssh. */
#pragma once

#include <signal.h>

#include "launcher/agent/folders.h"
#include "launcher/family.h"
#include "launcher/hosts/cluster.h"
#include "launcher/link.h"

/* Slurm, as dcp-run meets it inside of a job. It is asked by its own programs. */

/* Before the first start in a job: whether anything can be started on its other nodes, where it has
 * any. 0, or PROGRAM_FAILED after a message: srun or scontrol is missing, or no controller answers.
 */
int launcher_slurm_check(void);

/* In the process that becomes mpirun: what its srun needs to know. Nothing outside of a job. */
void launcher_slurm_set_environment(void);

/* Whether Slurm takes the nodes of this job away so that it runs another time: it is preempted, or
 * in the queue again already. 0 outside of a job, and where no controller answers within 2 s. Of
 * scancel and of a time limit it is 0, too. Called at a SIGTERM, and when ranks end by one. */
int launcher_slurm_is_preempted(void);

/* `dcp-run shell AGENT ARGS`: what Open MPI starts instead of AGENT, which is ssh or another
 * program that runs a command on another host. It puts the key of the start on AGENT's stdin, for
 * the agent of that host (agent/remote.h). Everybody may read a command line; a pipe is nobody
 * else's. */

/* Does not return but with an exit status, after a message. */
int launcher_shell_main(int argc, char **argv);
/* The same for `dcp-run start agent ARGS -- AGENT -- HOST COMMAND`, which MPICH starts instead of
 * `AGENT HOST COMMAND`: HOST is to run `dcp-run agent ARGS COMMAND`. */
int launcher_shell_start_main(int argc, char **argv);

/* The command with which a start's ranks are started: mpirun, which starts agents on other hosts by
 * ssh, or by srun in a Slurm job. What its options are called is in family.c. */

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
