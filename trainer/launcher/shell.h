/* `dcp-run shell AGENT ARGS`: what Open MPI starts instead of AGENT, which is ssh or another
 * program that runs a command on another host. It puts the key of the start on AGENT's stdin, for
 * the agent of that host (agent/remote.h). Everybody may read a command line; a pipe is nobody
 * else's. */
#pragma once

/* The words that Open MPI is to take for AGENT, but for dcp-run's path: "shell ssh -x". They go by
 * what the user has told Open MPI. NULL: Open MPI asks a batch system, which passes the environment
 * on, or finds no AGENT either. The text stays; the first call alone asks Open MPI. */
const char *launcher_shell_words(void);

/* Does not return but with an exit status, after a message. */
int launcher_shell_main(int argc, char **argv);
