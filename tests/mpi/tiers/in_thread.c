/* A thread of each rank waits for the save in flight, and begins to fill the other stores, while
 * the thread that uses the list does something else. Until that thread's next save, what is due is
 * the same on all ranks, whether or not their threads have returned. */
#include "support/tiers.h"

typedef struct waiting {
    pthread_t thread;
    dcp_tiers *tiers;
    dcp_report report;
    dcp_error failure;
    size_t store;
    int status;
} waiting;

static void *wait_for_save(void *ctx) {
    waiting *w = ctx;
    w->status = dcp_tiers_wait_in_thread(w->tiers, &w->store, &w->report, &w->failure);
    return NULL;
}

/* Returns once this rank's thread has returned. The others' threads may still be waiting. */
static waiting save(const scratch *s, dcp_tiers *tiers, uint64_t n) {
    given g;
    held h;
    waiting w = {.tiers = tiers, .report = DCP_REPORT_INIT};
    given_make(&g, n);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_tiers_save_async(tiers, n, h.state, GIVEN_JSON, NULL, err));
    CHECK(pthread_create(&w.thread, NULL, wait_for_save, &w) == 0);
    CHECK(pthread_join(w.thread, NULL) == 0);
    held_free(&h);
    given_free(&g);
    return w;
}

/* Hides this rank's directory of store 0 from its path, or makes it visible again. */
static void hide(const scratch *s, const tiers_under_test *t, int hidden) {
    char dir[PATH_MAX], away[PATH_MAX + 8];
    tiers_dir(t, s, 0, dir);
    snprintf(away, sizeof away, "%s.away", dir);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(rename(hidden ? dir : away, hidden ? away : dir) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    static tiers_under_test t;
    scratch s;
    scratch_begin(&s, &argc, &argv);
    tiers_make(&t, &s, NULL);
    dcp_tiers *tiers = tiers_open(&t, &s);
    CHECK(dcp_tiers_wait_in_thread(NULL, NULL, NULL, NULL) == DCP_ERR_ARG);
    size_t none = 0;
    SUCCEEDS(dcp_tiers_wait_in_thread(tiers, &none, NULL, err)); /* for no save */
    CHECK(none == 3);

    waiting w = save(&s, tiers, 4); /* due in all stores */
    CHECK(w.status == DCP_OK && w.store == 0 && w.report.bytes > 0);
    CHECK(dcp_tiers_is_done(tiers) == 1);
    CHECK(!dcp_tiers_has(tiers, 0, 4) && dcp_tiers_is_due(tiers, 4));
    SUCCEEDS(dcp_tiers_mark_intact(tiers, 0, 4, err));
    CHECK(dcp_tiers_has(tiers, 0, 4) && dcp_tiers_is_due(tiers, 4)); /* in the others */
    SUCCEEDS(dcp_tiers_wait(tiers, NULL, err));
    CHECK(dcp_tiers_has(tiers, 0, 4) && !dcp_tiers_is_due(tiers, 4));

    hide(&s, &t, 1);
    w = save(&s, tiers, 5); /* due in store 0 alone */
    CHECK(w.status == DCP_ERR_NOT_FOUND && w.store == 3 && strstr(w.failure.message, "memory-"));
    hide(&s, &t, 0);
    w = save(&s, tiers, 6); /* into store 1, since store 0 has failed */
    CHECK(w.status == DCP_OK && w.store == 1);
    tiers_check_steps(&t, &s, 0, "c4");
    SUCCEEDS(dcp_tiers_mark_intact(tiers, 1, 4, err)); /* store 0 gets step 6 all the same */
    w = save(&s, tiers, 7);                            /* after store 0 was filled with step 6 */
    CHECK(w.status == DCP_OK && w.store == 0);
    dcp_tiers_close(tiers);
    tiers_check_steps(&t, &s, 0, "c6 c7");
    tiers_check_steps(&t, &s, 1, "c4 c6");
    tiers_check_steps(&t, &s, 2, "c4");
    return scratch_end(&s);
}
