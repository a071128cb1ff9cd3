/* The commands of dcp-inspect. Each takes its own arguments, argv[0] being the program's name, and
 * returns the exit status. */
#ifndef RESHARD_INSPECT_H
#define RESHARD_INSPECT_H

#include <jansson.h>

int inspect_ls(int argc, char **argv);
int inspect_show(int argc, char **argv);
int inspect_verify(int argc, char **argv);
int inspect_diff(int argc, char **argv);
int inspect_stat(int argc, char **argv);
int inspect_layout(int argc, char **argv);

/* Prints `root` on stdout and frees it. */
void inspect_print_json(json_t *root);

#endif
