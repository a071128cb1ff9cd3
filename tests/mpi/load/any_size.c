/* What one rank saved loads on any number of ranks into any boxes of any of its tensors. */
#include "support/scratch.h"

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    if (s.rank == 0) scratch_save(&s, s.self, "alone", &g, COPIES, DCP_LAYOUT_GLOBAL);
    MPI_Barrier(MPI_COMM_WORLD);
    for (scheme how = ROWS; how < LOAD_SCHEMES; how++) scratch_load(&s, s.comm, "alone", &g, how);
    if (s.rank == 0) scratch_load(&s, s.self, "alone", &g, CORNERS);
    given_free(&g);
    return scratch_end(&s);
}
