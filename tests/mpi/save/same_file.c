/* One state, one file: whichever ranks hold whichever boxes, state.h5 has the bytes that one rank
 * alone writes. */
#include "support/scratch.h"

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    if (s.rank == 0) scratch_save(&s, s.self, "alone", &g, COPIES, DCP_LAYOUT_GLOBAL);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_store *store = scratch_store(&s, s.comm, "all");
    for (scheme how = ROWS; how < SAVE_SCHEMES; how++)
        for (int again = 0; again <= (how == BLOCKS); again++) { /* once with the plan kept */
            held h;
            dcp_report report = DCP_REPORT_INIT;
            held_make(&h, &g, how, s.rank, s.size, 1);
            SUCCEEDS(dcp_save(store, 5, h.state, GIVEN_JSON, NULL, &report, err));
            CHECK(report.bytes > 10 << 20 && report.total_s > 0);
            if (!scratch_same(&s, "alone/step-00000005/state.h5", "all/step-00000005/state.h5"))
                check_failed(__FILE__, __LINE__, scheme_names[how]);
            held_free(&h);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    dcp_store_close(store);
    given_free(&g);
    return scratch_end(&s);
}
