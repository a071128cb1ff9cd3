/* `dcp-run shell AGENT ARGS`: what Open MPI starts instead of AGENT, which is ssh or another
 * program that runs a command on another host. It puts the key of the start on AGENT's stdin, for
 * the agent of that host (agent/remote.h). Everybody may read a command line; a pipe is nobody
 * else's. */
#pragma once

#include "launcher/family.h"

/* The words of AGENT: "ssh -x". They go by what the user has told the family of mpirun. NULL: Open
 * MPI asks a batch system, which passes the environment on, or finds no AGENT either. The text
 * stays; the first call alone asks Open MPI. */
const char *launcher_shell_words(const launcher_family_remote *by);

/* Does not return but with an exit status, after a message. */
int launcher_shell_main(int argc, char **argv);
/* The same for `dcp-run start agent ARGS -- AGENT -- HOST COMMAND`, which MPICH starts instead of
 * `AGENT HOST COMMAND`: HOST is to run `dcp-run agent ARGS COMMAND`. */
int launcher_shell_start_main(int argc, char **argv);
