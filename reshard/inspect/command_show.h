/* dcp-inspect show: prints tensors and values. */
#ifndef RESHARD_INSPECT_COMMAND_SHOW_H
#define RESHARD_INSPECT_COMMAND_SHOW_H

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_show(int argc, char **argv);

#endif
