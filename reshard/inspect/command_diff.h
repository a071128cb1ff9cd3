/* dcp-inspect diff: compares two checkpoints. */
#pragma once

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_diff(int argc, char **argv);
