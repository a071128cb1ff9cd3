/* dcp-inspect ls: lists the steps of a directory. */
#ifndef RESHARD_INSPECT_COMMAND_LS_H
#define RESHARD_INSPECT_COMMAND_LS_H

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_ls(int argc, char **argv);

#endif
