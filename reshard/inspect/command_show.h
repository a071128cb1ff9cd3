/* dcp-inspect show: prints tensors and values. */
#pragma once

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_show(int argc, char **argv);
