/* `dcp-run agent PORT ADDRESSES FOLDERS... PROGRAM ARGS`: what a launcher starts on another host
 * instead of PROGRAM, which is its daemon (orted). The key, which shows dcp-run that the agent
 * belongs to the start, is in its environment if the launcher passes it on (Slurm), otherwise it is
 * a line on its stdin. */
#pragma once

#define LAUNCHER_KEY "DCP_RUN_KEY"

enum {
    LAUNCHER_REMOTE_WORDS = 6, /* dcp-run agent PORT ADDRESSES FOLDER FOLDER */
    LAUNCHER_KEY_BYTES = 32    /* hexadecimal digits */
};

/* Becomes the agent. Returns only after a message, with an exit status. */
int launcher_remote_main(int argc, char **argv);
