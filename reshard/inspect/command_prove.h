/* dcp-inspect prove: the state id and the tensors' checksums. */
#pragma once

/* argv[0] is the program's name, its arguments follow. Returns the exit status. */
int inspect_prove(int argc, char **argv);
