/* The commands of dcp-inspect. argv[0] is the program's name, and its arguments follow. Each
 * command returns the exit status. */
#pragma once

/* Compares two checkpoints. */

int inspect_diff(int argc, char **argv);

/* Shows which rank holds which tensors. */

int inspect_layout(int argc, char **argv);

/* Lists the steps of a directory. */

int inspect_ls(int argc, char **argv);

/* Prints the state id and the tensors' checksums. */

int inspect_prove(int argc, char **argv);

/* Prints tensors and values. */

int inspect_show(int argc, char **argv);

/* Prints sizes, and statistics of the numbers. */

int inspect_stat(int argc, char **argv);

/* Checks every byte. */

int inspect_verify(int argc, char **argv);
