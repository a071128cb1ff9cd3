/* dcp-inspect layout: who holds what. */
#pragma once

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_layout(int argc, char **argv);
