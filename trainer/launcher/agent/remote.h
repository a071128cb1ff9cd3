/* `dcp-run agent PORT ADDRESSES FOLDERS... PROGRAM ARGS`: the command that a launcher runs on
 * another host in place of PROGRAM, the launcher's daemon (such as orted). A key shows dcp-run that
 * the agent belongs to the start. The agent finds the key in its environment if the launcher passes
 * the variable on (Slurm), otherwise as a line on its stdin. */
#pragma once

#define LAUNCHER_KEY "DCP_RUN_KEY"

enum {
    LAUNCHER_REMOTE_WORDS = 6, /* dcp-run agent PORT ADDRESSES FOLDER FOLDER */
    LAUNCHER_KEY_BYTES = 32    /* hexadecimal digits */
};

/* Becomes the agent. Returns only if that fails: an exit status, after a message. */
int launcher_remote_main(int argc, char **argv);
