/* dcp-inspect verify: checks every byte. */
#ifndef RESHARD_INSPECT_COMMAND_VERIFY_H
#define RESHARD_INSPECT_COMMAND_VERIFY_H

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_verify(int argc, char **argv);

#endif
