/* Saves at every step are stored where they are due: in memory directly, in the other stores from
 * the copy in memory; each store keeps its own steps, and the shared one has what a direct save
 * would have written, byte for byte. */
#include <stdatomic.h>
#include <sys/stat.h>

#include "comm/comm.h"
#include "support/tiers.h"

/* The memory changes right after the fence, as in a training step; for every second step, which is
 * copied, right after the call. */
static void step(const scratch *s, dcp_tiers *tiers, given *g, uint64_t n) {
    held h;
    const dcp_save_options options = {.size = sizeof options,
                                      .copy_bytes = n % 2 ? DCP_COPY_DEFAULT : 0};
    dcp_tiers_fence(tiers);
    given_make(g, n);
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    CHECK(dcp_tiers_is_due(tiers, n));
    SUCCEEDS(dcp_tiers_save_async(tiers, n, h.state, GIVEN_JSON, &options, err));
    if (!options.copy_bytes) dcp_tiers_fence(tiers);
    for (size_t i = 0; i < h.n; i++) {
        const dcp_tensor *t = &g->tensors[h.boxes[i].tensor];
        memset(h.boxes[i].data, 0xaa,
               dcp_box_elems(&h.boxes[i].box, t->ndim ? t->ndim : 1) * dcp_dtype_bytes(t->dtype));
    }
    SUCCEEDS(dcp_tiers_wait(tiers, NULL, err));
    held_free(&h);
    given_free(g);
}

static void save_straight(const scratch *s, uint64_t n) {
    given g;
    held h;
    dcp_store *store = scratch_store(s, s->comm, "straight");
    given_make(&g, n);
    held_make(&h, &g, STRIPES, s->rank, s->size, 1);
    SUCCEEDS(dcp_save(store, n, h.state, GIVEN_JSON, NULL, NULL, err));
    held_free(&h);
    given_free(&g);
    dcp_store_close(store);
}

static void check_each_store(const scratch *s, tiers_under_test *t) {
    char dir[PATH_MAX];
    given g;
    given_make(&g, 8);
    for (int i = 0; i < 3; i++) {
        tiers_dir(t, s, i, dir);
        private_load(s->comm, dir, &g, BLOCKS, 8);
    }
    given_free(&g);
    save_straight(s, 8);
    CHECK(scratch_same(s, "shared/step-00000008/state.h5", "straight/step-00000008/state.h5"));
}

/* What is saved and waited for is in the stores that were due, and in the last one. */
static void the_last_step(const scratch *s, tiers_under_test *t) {
    given g;
    held h;
    dcp_tiers *tiers = tiers_open(t, s);
    dcp_report report = DCP_REPORT_INIT;
    tiers_expect(tiers, s, 8);
    CHECK(dcp_tiers_has(tiers, 0, 8) && !dcp_tiers_has(tiers, 0, 9));
    CHECK(!dcp_tiers_has(tiers, 2, 8)); /* nobody has read it there */
    SUCCEEDS(dcp_tiers_continue_from(tiers, 8, err));
    given_make(&g, 9);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_tiers_save(tiers, 9, h.state, GIVEN_JSON, NULL, 1, &report, err));
    CHECK(report.bytes > 0 && dcp_tiers_has(tiers, 2, 9));
    CHECK(!dcp_tiers_is_due(tiers, 9)); /* all that were due have it */
    SUCCEEDS(dcp_tiers_save(tiers, 9, h.state, GIVEN_JSON, NULL, 1, NULL, err));
    SUCCEEDS(dcp_tiers_ask(tiers, 1, err)); /* which is not due */
    CHECK(dcp_tiers_ask(tiers, 3, NULL) == DCP_ERR_ARG && dcp_tiers_is_due(tiers, 9));
    SUCCEEDS(dcp_tiers_save(tiers, 9, h.state, GIVEN_JSON, NULL, 0, NULL, err));
    CHECK(dcp_tiers_has(tiers, 1, 9) && !dcp_tiers_is_due(tiers, 9));
    held_free(&h);
    given_free(&g);
    dcp_tiers_close(tiers);
    tiers_check_steps(t, s, 0, "c8 c9");
    tiers_check_steps(t, s, 1, "c8 c9");
    tiers_check_steps(t, s, 2, "c8 c9");
}

/* A step is loaded from the fast store; the slow one's copy was damaged in the meantime. Nobody has
 * read it, so the last save writes it again. */
static void a_copy_that_nobody_read(const scratch *s) {
    char fast[PATH_MAX], slow[PATH_MAX], path[2 * PATH_MAX];
    unsigned char byte = 0;
    uint64_t step = 0;
    given g;
    snprintf(fast, sizeof fast, "%s/read", s->root);
    snprintf(slow, sizeof slow, "%s/unread", s->root);
    const dcp_tier list[] = {{.size = sizeof(dcp_tier), .path = fast, .every = 1},
                             {.size = sizeof(dcp_tier), .path = slow, .every = 1}};
    for (int restart = 0; restart < 2; restart++) {
        dcp_tiers *tiers = NULL;
        held h;
        tiers_loading l = {s, 0};
        given_make(&g, 3);
        held_make(&h, &g, ROWS, s->rank, s->size, 1);
        SUCCEEDS(dcp_tiers_open(s->comm, list, 2, NULL, &tiers, err));
        if (restart) SUCCEEDS(dcp_tiers_load(tiers, tiers_load_rows, &l, &step, err));
        CHECK(!restart || (step == 3 && dcp_tiers_has(tiers, 0, 3) && !dcp_tiers_has(tiers, 1, 3)));
        SUCCEEDS(dcp_tiers_save(tiers, 3, h.state, GIVEN_JSON, NULL, 1, NULL, err));
        CHECK(dcp_tiers_has(tiers, 1, 3));
        dcp_tiers_close(tiers);
        held_free(&h);
        given_free(&g);
        MPI_Barrier(MPI_COMM_WORLD);
        if (restart || s->rank) continue;
        snprintf(path, sizeof path, "%s/step-00000003/state.h5", slow);
        int fd = open(path, O_RDWR);
        CHECK(pread(fd, &byte, 1, 1 << 20) == 1);
        byte ^= 4;
        CHECK(pwrite(fd, &byte, 1, 1 << 20) == 1);
        close(fd);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/step-00000003", slow);
    if (s->rank == 0) SUCCEEDS(dcp_verify(path, NULL, err));
}

/* One file that all ranks see, read back in parts by all of them. */
static void from_one_file(const scratch *s, given *g) {
    char fast[PATH_MAX], slow[PATH_MAX];
    snprintf(fast, sizeof fast, "%s/fast", s->root);
    snprintf(slow, sizeof slow, "%s/slow", s->root);
    const dcp_tier list[] = {
        {.size = sizeof(dcp_tier), .path = fast, .every = 1},
        {.size = sizeof(dcp_tier), .path = slow, .every = 1, .layout = DCP_LAYOUT_SHARDED}};
    dcp_tiers *tiers = NULL;
    SUCCEEDS(dcp_tiers_open(s->comm, list, 2, NULL, &tiers, err));
    step(s, tiers, g, 1);
    dcp_tiers_close(tiers);
    given_make(g, 1);
    private_load(s->comm, slow, g, COLUMNS, 1);
    given_free(g);
}

/* Which stores are due depends on the step: a rank with another step would wait alone. */
static void ranks_that_disagree(const scratch *s, dcp_tiers *tiers) {
    given g;
    held h;
    dcp_error failure = {0};
    dcp_tiers_step *steps;
    size_t n;
    const dcp_tier list[] = {{.size = sizeof(dcp_tier), .path = s->root},
                             {.size = sizeof(dcp_tier), .path = s->root}};
    const dcp_save_options busy = {.size = sizeof busy,
                                   .when_busy = s->rank ? DCP_BUSY_REFUSE : DCP_BUSY_WAIT};
    if (s->size == 1) return;
    given_make(&g, 9);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    int status = dcp_tiers_save_async(tiers, s->rank ? 10 : 9, h.state, NULL, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "the step: 9 on rank 0, 10 on rank");
    status = dcp_tiers_save_async(tiers, 10, h.state, NULL, &busy, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "when_busy: 0 on rank 0, 1 on rank");
    status = dcp_tiers_save(tiers, 9, h.state, NULL, NULL, s->rank, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "also_last");
    status = dcp_tiers_steps(s->comm, list, s->rank ? 1 : 2, &steps, &n, &failure);
    check_same_failure(
        status, DCP_ERR_MISMATCH, &failure,
        "the list of stores (all but the paths and domains): one on rank 0, another on rank");
    held_free(&h);
    given_free(&g);
}

static void note_filling(void *ctx, uint64_t done, uint64_t total) {
    CHECK(done <= total);
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void save_at_every_step(const scratch *s) {
    static tiers_under_test t;
    given g;
    atomic_int filled = 0;
    tiers_make(&t, s, NULL);
    t.options.on_fill_progress = note_filling;
    t.options.fill_progress_ctx = &filled;
    dcp_tiers *tiers = tiers_open(&t, s);
    for (uint64_t n = 1; n <= 8; n++) step(s, tiers, &g, n);
    ranks_that_disagree(s, tiers);
    dcp_tiers_close(tiers);
    CHECK(atomic_load(&filled) > 0);
    tiers_check_steps(&t, s, 0, "c7 c8");
    tiers_check_steps(&t, s, 1, "c6 c8");
    tiers_check_steps(&t, s, 2, "c4 c8");
    check_each_store(s, &t);
    the_last_step(s, &t);
    from_one_file(s, &g);
    a_copy_that_nobody_read(s);
}

/* Everything is gone, and ranks cannot have a second thread that communicates. */
static void without_threads(scratch *s) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) {
        CHECK(store_directory_remove(AT_FDCWD, s->root) == 0);
        CHECK(mkdir(s->root, 0700) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    s->comm->duplicate = NULL;
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    save_at_every_step(&s);
    without_threads(&s);
    save_at_every_step(&s);
    return scratch_end(&s);
}
