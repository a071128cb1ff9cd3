/* dcp-inspect verify: checks every byte. */
#pragma once

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_verify(int argc, char **argv);
