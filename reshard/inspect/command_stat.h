/* dcp-inspect stat: sizes, and what the numbers are like. */
#ifndef RESHARD_INSPECT_COMMAND_STAT_H
#define RESHARD_INSPECT_COMMAND_STAT_H

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_stat(int argc, char **argv);

#endif
