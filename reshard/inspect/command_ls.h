/* dcp-inspect ls: lists the steps of a directory. */
#pragma once

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_ls(int argc, char **argv);
