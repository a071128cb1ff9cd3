/* dcp-inspect diff: compares two checkpoints. */
#ifndef RESHARD_INSPECT_COMMAND_DIFF_H
#define RESHARD_INSPECT_COMMAND_DIFF_H

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_diff(int argc, char **argv);

#endif
