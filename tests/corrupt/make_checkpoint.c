/* make_checkpoint DIR STEP [global|sharded]: the tiny state as a step, for scripts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiny.h"

int main(int argc, char **argv) {
    dcp_error err = {0};
    dcp_comm *comm;
    if (argc < 3 || dcp_comm_self(&comm, &err)) return 2;
    dcp_layout layout =
        argc > 3 && strcmp(argv[3], "sharded") == 0 ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL;
    int status = tiny_save(comm, argv[1], strtoull(argv[2], NULL, 10), layout, &err);
    if (status) fprintf(stderr, "make_checkpoint: %s\n", err.message);
    dcp_comm_destroy(comm);
    return status ? 3 : 0;
}
