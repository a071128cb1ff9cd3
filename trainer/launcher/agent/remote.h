/* `dcp-run agent PORT ADDRESSES FOLDERS... PROGRAM ARGS`: what a launcher starts on another host
 * instead of PROGRAM, which is orted. The key by which it shows dcp-run that it belongs to the
 * start is in its environment, where the launcher passes that on (Slurm), else a line on its stdin.
 */
#pragma once

#define LAUNCHER_KEY "DCP_RUN_KEY" /* the variable */

enum {
    LAUNCHER_REMOTE_WORDS = 6, /* dcp-run agent PORT ADDRESSES FOLDER FOLDER */
    LAUNCHER_KEY_BYTES = 32    /* hexadecimal digits */
};

/* The exit status where it does not become the agent, after a message. */
int launcher_remote_main(int argc, char **argv);
