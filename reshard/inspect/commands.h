/* The commands of dcp-inspect. */
#pragma once

/* dcp-inspect diff: compares two checkpoints. */

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_diff(int argc, char **argv);

/* dcp-inspect layout: who holds what. */

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_layout(int argc, char **argv);

/* dcp-inspect ls: lists the steps of a directory. */

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_ls(int argc, char **argv);

/* dcp-inspect prove: the state id and the tensors' checksums. */

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_prove(int argc, char **argv);

/* dcp-inspect show: prints tensors and values. */

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_show(int argc, char **argv);

/* dcp-inspect stat: sizes, and what the numbers are like. */

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_stat(int argc, char **argv);

/* dcp-inspect verify: checks every byte. */

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_verify(int argc, char **argv);
