/* What is loaded after losses: the newest step of all stores, from the faster store if two have it;
 * rebuilt if redundancy permits, otherwise from the next store or an older step; and going back
 * sets later steps aside in every store. */
#include "support/tiers.h"

static void save(const scratch *s, dcp_tiers *tiers, uint64_t n) {
    given g;
    held h;
    given_make(&g, n);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_tiers_save(tiers, n, h.state, GIVEN_JSON, NULL, 0, NULL, err));
    held_free(&h);
    given_free(&g);
}

/* Removes rank `rank`'s directory of store i, or the step's folder in it; -1: every rank's. */
static void lose(const scratch *s, const tiers_under_test *t, int i, int rank, const char *step) {
    char dir[PATH_MAX], path[2 * PATH_MAX];
    MPI_Barrier(MPI_COMM_WORLD);
    tiers_dir(t, s, i, dir);
    snprintf(path, sizeof path, "%s%s%s", dir, step ? "/" : "", step ? step : "");
    if (rank < 0 || rank == s->rank) CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Opens the stores again, as a restart does, and loads. */
static void restart(const scratch *s, tiers_under_test *t, uint64_t expected, const char *logged) {
    t->log.text[0] = '\0';
    dcp_tiers *tiers = tiers_open(t, s);
    tiers_expect(tiers, s, expected);
    if (!tiers_logged(t, s, logged)) fprintf(stderr, "not %s, but\n%s", logged, t->log.text);
    CHECK(tiers_logged(t, s, logged));
    CHECK((dcp_tiers_rebuilt(tiers) > 0) == (strstr(logged, "rebuilt") != NULL));
    dcp_tiers_close(tiers);
}

/* Wants a tensor that no step has. */
static int load_more(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    static float element;
    const tiers_loading *l = ctx;
    const dcp_tensor more = {.path = "/model/more", .dtype = DCP_F32, .ndim = 1, .shape = {1}};
    given g;
    held h;
    given_make(&g, dcp_checkpoint_step(ckpt));
    held_make(&h, &g, COLUMNS, l->s->rank, l->s->size, 0);
    CHECK(dcp_state_add(h.state, &more, NULL, &element, NULL) == DCP_OK);
    const int status = dcp_load(ckpt, h.state, NULL, err);
    held_free(&h);
    given_free(&g);
    return status;
}

/* Loads, but the last rank alone reports another failure. */
static int fail_on_one_rank(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    const tiers_loading *l = ctx;
    const int status = tiers_load_rows(ctx, ckpt, err);
    if (l->s->rank < l->s->size - 1) return status;
    snprintf(err->message, sizeof err->message, "not on this rank");
    return err->status = DCP_ERR_IO;
}

/* Neither is a reason to load an older step. */
static void an_intact_step_is_not_passed_over(const scratch *s, dcp_tiers *tiers) {
    tiers_loading l = {s, 0};
    dcp_error failure = {0};
    int status = dcp_tiers_load(tiers, load_more, &l, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "/model/more is not in the checkpoint");
    status = dcp_tiers_load(tiers, fail_on_one_rank, &l, NULL, &failure);
    check_same_failure(status, DCP_ERR_IO, &failure, "not on this rank");
    tiers_expect(tiers, s, 7);
}

static void without_redundancy(const scratch *s) {
    static tiers_under_test t;
    tiers_make(&t, s, "none");
    dcp_tiers *tiers = tiers_open(&t, s);
    tiers_loading l = {s, 0};
    dcp_error failure = {0};
    int status = dcp_tiers_load(tiers, tiers_load_rows, &l, NULL, &failure);
    check_same_failure(status, DCP_ERR_NOT_FOUND, &failure, "no step");
    for (uint64_t n = 1; n <= 7; n++) save(s, tiers, n);
    an_intact_step_is_not_passed_over(s, tiers);
    dcp_tiers_close(tiers);
    restart(s, &t, 7, "memory-0");
    tiers_flip(s, &t, s->size - 1, "step-00000007");
    restart(s, &t, 6, "step 7 is damaged");
    lose(s, &t, 0, s->size - 1, "step-00000006");
    restart(s, &t, 6, "disk-");
    lose(s, &t, 0, -1, NULL);
    lose(s, &t, 1, 0, NULL);
    restart(s, &t, 4, "shared");
}

static void going_back(const scratch *s) {
    static tiers_under_test t;
    tiers_make(&t, s, NULL); /* memory is lost: step 4 of the shared store is the newest */
    dcp_tiers *tiers = tiers_open(&t, s);
    tiers_expect(tiers, s, 4);
    SUCCEEDS(dcp_tiers_continue_from(tiers, 3, err));
    save(s, tiers, 5); /* only into memory: nevertheless nothing newer may exist elsewhere */
    dcp_tiers_close(tiers);
    tiers_check_steps(&t, s, 0, "c5");
    tiers_check_steps(&t, s, 1, s->rank == 0 ? "" : "a4 a6");
    tiers_check_steps(&t, s, 2, "a4");
    restart(s, &t, 5, "memory-0");
}

static void copy_file(const char *from, const char *to) {
    static char data[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0666);
    CHECK(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, data, sizeof data)) != 0;)
        CHECK(n > 0 && write(out, data, (size_t)n) == n);
    CHECK(close(in) == 0 && close(out) == 0);
}

/* Rank 0 comes back with a damaged shard, which was rebuilt on rank 1's node meanwhile. */
static void come_back(const scratch *s, const tiers_under_test *t) {
    char dir[PATH_MAX], shard[64], from[2 * PATH_MAX], to[2 * PATH_MAX];
    tiers_dir(t, s, 0, dir);
    snprintf(shard, sizeof shard, "step-00000005/shard-00000-of-%05d.h5", s->size);
    snprintf(from, sizeof from, "%s/memory-0/%s", s->root, shard);
    snprintf(to, sizeof to, "%s/%s", dir, shard);
    if (s->rank == 1) copy_file(from, to);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) CHECK(truncate(from, 4096) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void with_redundancy(const scratch *s, const char *redundancy) {
    static tiers_under_test t;
    for (int i = 0; i < 3; i++) {
        char dir[PATH_MAX];
        tiers_dir(&t, s, i, dir);
        MPI_Barrier(MPI_COMM_WORLD);
        store_directory_remove(AT_FDCWD, dir);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    tiers_make(&t, s, redundancy);
    dcp_tiers *tiers = tiers_open(&t, s);
    for (uint64_t n = 1; n <= 5; n++) save(s, tiers, n);
    dcp_tiers_close(tiers);
    lose(s, &t, 0, s->size - 1, NULL);
    restart(s, &t, 5, "of its files were rebuilt");
    restart(s, &t, 5, "step 5 is loaded from");
    tiers_flip(s, &t, 0, "step-00000005");
    restart(s, &t, 5, "of its files were rebuilt");
    come_back(s, &t);
    restart(s, &t, 5, "of its files were rebuilt");
    restart(s, &t, 5, "step 5 is loaded from");
    lose(s, &t, 0, 0, NULL);
    lose(s, &t, 0, 1, NULL);
    restart(s, &t, 4, "step 5 is damaged");
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    without_redundancy(&s);
    going_back(&s);
    with_redundancy(&s, "partner");
    with_redundancy(&s, "rs(1)");
    return scratch_end(&s);
}
