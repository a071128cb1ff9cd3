/* `dcp-run agent KEY PORT ADDRESSES FOLDERS... PROGRAM ARGS`: what a launcher starts on another
 * host instead of PROGRAM, which is orted. */
#pragma once

enum { LAUNCHER_REMOTE_WORDS = 7 }; /* dcp-run agent KEY PORT ADDRESSES FOLDER FOLDER */

/* The exit status where it does not become the agent, after a message. */
int launcher_remote_main(int argc, char **argv);
