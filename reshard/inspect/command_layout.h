/* dcp-inspect layout: who holds what. */
#ifndef RESHARD_INSPECT_COMMAND_LAYOUT_H
#define RESHARD_INSPECT_COMMAND_LAYOUT_H

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_layout(int argc, char **argv);

#endif
