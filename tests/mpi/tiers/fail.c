/* A store that fails does not stop the others: the failure is reported, and the store is tried
 * again with the next save; if all fail, the save fails. A damaged step fills none. */
#include "support/tiers.h"

static int save(const scratch *s, dcp_tiers *tiers, uint64_t n, dcp_error *failure) {
    given g;
    held h;
    given_make(&g, n);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_tiers_save_async(tiers, n, h.state, GIVEN_JSON, NULL, err));
    int status = dcp_tiers_wait(tiers, NULL, failure);
    held_free(&h);
    given_free(&g);
    return status;
}

static int save_all(const scratch *s, dcp_tiers *tiers, uint64_t n, dcp_error *failure) {
    given g;
    held h;
    given_make(&g, n);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    int status = dcp_tiers_save(tiers, n, h.state, GIVEN_JSON, NULL, 1, NULL, failure);
    held_free(&h);
    given_free(&g);
    return status;
}

/* Hides the last rank's directory of store i from its path, or makes it visible again. */
static void hide(const scratch *s, const tiers_under_test *t, int i, int hidden) {
    char dir[PATH_MAX], away[PATH_MAX + 8];
    MPI_Barrier(MPI_COMM_WORLD);
    tiers_dir(t, s, i, dir);
    snprintf(away, sizeof away, "%s.away", dir);
    if (s->rank == s->size - 1) CHECK(rename(hidden ? dir : away, hidden ? away : dir) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Step 8 is due in all stores, and a byte of it is damaged before the others are filled from it:
 * they do not get it. */
static void a_damaged_step(const scratch *s, const tiers_under_test *t, dcp_tiers *tiers) {
    given g;
    held h;
    given_make(&g, 8);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_tiers_save_async(tiers, 8, h.state, GIVEN_JSON, NULL, err));
    while (!dcp_tiers_is_done(tiers)) usleep(1000);
    tiers_flip(s, t, s->size - 1, "step-00000008");
    SUCCEEDS(dcp_tiers_wait(tiers, NULL, err));
    held_free(&h);
    given_free(&g);
}

int main(int argc, char **argv) {
    static tiers_under_test t;
    scratch s;
    dcp_error failure = {0};
    scratch_begin(&s, &argc, &argv);
    tiers_make(&t, &s, NULL);
    dcp_tiers *tiers = tiers_open(&t, &s);
    CHECK(save(&s, tiers, 1, NULL) == DCP_OK);
    hide(&s, &t, 0, 1);
    check_same_failure(save(&s, tiers, 2, &failure), DCP_ERR_NOT_FOUND, &failure, "memory-");
    CHECK(dcp_tiers_is_due(tiers, 3)); /* for both: the disk did not get it either */
    CHECK(save(&s, tiers, 3, NULL) == DCP_OK);
    SUCCEEDS(save_all(&s, tiers, 4, err)); /* the last store has it */
    SUCCEEDS(save_all(&s, tiers, 4, err)); /* and had it before this call */
    CHECK(tiers_logged(&t, &s, "step 3 is not saved in"));
    CHECK(tiers_logged(&t, &s, "step 4 is not saved in"));
    tiers_check_steps(&t, &s, 2, "c4");
    hide(&s, &t, 2, 1);
    check_same_failure(save_all(&s, tiers, 5, &failure), DCP_ERR_NOT_FOUND, &failure, "shared");
    hide(&s, &t, 2, 0);
    hide(&s, &t, 0, 0);
    CHECK(save(&s, tiers, 6, NULL) == DCP_OK);
    a_damaged_step(&s, &t, tiers);
    dcp_tiers_close(tiers);
    CHECK(tiers_logged(&t, &s, "what was read differs from what was saved"));
    tiers_check_steps(&t, &s, 0, "c6 c8");
    tiers_check_steps(&t, &s, 1, "c4 c6");
    tiers_check_steps(&t, &s, 2, "c4 c6");
    return scratch_end(&s);
}
