/* dcp-inspect stat: sizes, and what the numbers are like. */
#pragma once

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_stat(int argc, char **argv);
