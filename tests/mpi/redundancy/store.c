/* A private store with redundancy: its saves survive the loss of a node's files, damage counts as
 * loss, too much loss falls back to an older step; and impossible redundancy is refused when the
 * store is opened. */
#include "store/store.h"
#include "support/private_files.h"

static char log_lines[16384];

static void note(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx, (void)level;
    size_t length = strlen(log_lines);
    snprintf(log_lines + length, sizeof log_lines - length, "%s\n", line);
}

static int node_of(const private_files *p) { return p->s->rank / p->ranks_a_node; }

static int open_store(const private_files *p, const char *redundancy, dcp_store **store,
                      dcp_error *err) {
    char dir[PATH_MAX], domain[32];
    dcp_store_options options = {.size = sizeof options,
                                 .private_dirs = 1,
                                 .redundancy = redundancy,
                                 .log = note,
                                 .domain = domain};
    snprintf(domain, sizeof domain, "node-%d", node_of(p));
    private_folder(p, node_of(p), dir);
    *strrchr(dir, '/') = '\0';
    return dcp_store_open(p->s->comm, dir, &options, store, err);
}

/* Step 4 by a save, step 7 by one in flight. */
static void save_both(private_files *p, const char *redundancy) {
    dcp_save_options options = {.size = sizeof options, .layout = DCP_LAYOUT_SHARDED};
    dcp_store *store;
    dcp_saving *saving;
    given g;
    held h;
    given_make(&g, 0);
    held_make(&h, &g, ROWS, p->s->rank, p->s->size, 1);
    SUCCEEDS(open_store(p, redundancy, &store, err));
    SUCCEEDS(dcp_save(store, 4, h.state, GIVEN_JSON, &options, NULL, err));
    SUCCEEDS(dcp_save_async(store, PRIVATE_STEP, h.state, GIVEN_JSON, &options, &saving, err));
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    dcp_store_close(store);
    held_free(&h);
    given_free(&g);
    MPI_Barrier(MPI_COMM_WORLD);
    private_keep(p);
    CHECK(p->s->rank || p->n_kept == 2 * p->world);
}

static int rebuild(const private_files *p, int every_byte, uint64_t *step, int *rebuilt,
                   dcp_error *failure) {
    dcp_store *store;
    MPI_Barrier(MPI_COMM_WORLD);
    log_lines[0] = '\0';
    SUCCEEDS(open_store(p, NULL, &store, err));
    int status = dcp_store_rebuild(store, every_byte, step, rebuilt, failure);
    dcp_store_close(store);
    MPI_Barrier(MPI_COMM_WORLD);
    return status;
}

static void check_rebuilt(const private_files *p, int every_byte, uint64_t expected, int files) {
    uint64_t step = 0;
    int rebuilt = -1;
    SUCCEEDS(rebuild(p, every_byte, &step, &rebuilt, err));
    if (step != expected || rebuilt != files)
        fprintf(stderr, "step %d, %d files rebuilt, not %d, %d\n", (int)step, rebuilt,
                (int)expected, files);
    CHECK(step == expected && rebuilt == files);
    CHECK(p->s->rank || !files == !strstr(log_lines, "were lost and are rebuilt"));
}

/* By ranks that see only their own node. */
static void check_loads(const private_files *p) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt;
    given g;
    held h;
    given_make(&g, 0);
    held_make(&h, &g, COLUMNS, p->s->rank, p->s->size, 0);
    private_folder(p, node_of(p), dir);
    *strrchr(dir, '/') = '\0';
    SUCCEEDS(dcp_checkpoint_open_private(p->s->comm, dir, &ckpt, err));
    CHECK(dcp_checkpoint_step(ckpt) == PRIVATE_STEP);
    SUCCEEDS(dcp_load(ckpt, h.state, NULL, err));
    CHECK(held_is_given(&h, &g));
    dcp_checkpoint_close(ckpt);
    held_free(&h);
    given_free(&g);
}

/* An older step is rebuilt, and the newest is unchanged. */
static void one_step_is_rebuilt(const private_files *p) {
    char path[PATH_MAX];
    dcp_store *store;
    dcp_error failure = {0};
    int rebuilt = 0;
    snprintf(path, sizeof path, "%s/node-1/step-00000004", p->s->root);
    MPI_Barrier(MPI_COMM_WORLD);
    if (p->s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    private_lose(p, 1);
    SUCCEEDS(open_store(p, NULL, &store, err));
    SUCCEEDS(store_restore_step(store, 4, 0, &rebuilt, err));
    CHECK(rebuilt == 2 * p->ranks_a_node && access(path, R_OK) == 0);
    SUCCEEDS(store_restore_step(store, 4, 0, &rebuilt, err));
    CHECK(rebuilt == 0);
    check_same_failure(store_restore_step(store, 5, 0, &rebuilt, &failure), DCP_ERR_NOT_FOUND,
                       &failure, "no rank sees an intact redundancy file");
    dcp_store_close(store);
    private_folder(p, 0, path);
    CHECK(access(path, F_OK));
    check_rebuilt(p, 0, PRIVATE_STEP, 2 * p->ranks_a_node);
    private_compare(p, 0);
}

static void a_lost_node_is_rebuilt(const private_files *p) {
    char path[PATH_MAX];
    check_rebuilt(p, 1, PRIVATE_STEP, 0);
    for (int node = 0; node < p->nodes; node++) {
        private_lose(p, 1u << node);
        check_rebuilt(p, node % 2, PRIVATE_STEP, 2 * p->ranks_a_node);
        private_compare(p, 0);
        private_folder(p, node, path);
        if (p->s->rank == 0) SUCCEEDS(dcp_verify(path, NULL, err));
        strcat(path, "/about.json");
        CHECK(access(path, R_OK) == 0);
        check_loads(p);
    }
}

static void damage_counts_as_loss(const private_files *p) {
    char path[PATH_MAX];
    private_path(p, 1, "shard", path);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (p->s->rank == 0) CHECK(pwrite(fd, "damage", 6, 5000) == 6);
    close(fd);
    check_rebuilt(p, 0, PRIVATE_STEP, 0);
    check_rebuilt(p, 1, PRIVATE_STEP, 1);
    private_compare(p, 0);
}

/* While its node was away, a shard was rebuilt on another one. It comes back with a damaged shard,
 * which the ranks would read. */
static void a_damaged_copy_does_not_hide_an_intact_one(const private_files *p) {
    char path[PATH_MAX], copy[PATH_MAX];
    size_t bytes = 0;
    private_path(p, 0, "shard", path);
    private_folder(p, 1, copy);
    strcat(copy, strrchr(path, '/'));
    MPI_Barrier(MPI_COMM_WORLD);
    if (p->s->rank == 0) {
        unsigned char *data = private_read(path, &bytes);
        CHECK(data);
        private_write(copy, data, bytes);
        data[5000] ^= 1;
        private_write(path, data, bytes);
        free(data);
    }
    check_rebuilt(p, 1, PRIVATE_STEP, 1);
    private_compare(p, 0);
    check_loads(p);
    if (p->s->rank == 0) CHECK(unlink(copy) == 0);
    check_rebuilt(p, 1, PRIVATE_STEP, 0);
}

/* Checks that the node has an about.json which lists the node's shards. */
static void check_about(const private_files *p, int node) {
    char folder[PATH_MAX], *text;
    MPI_Barrier(MPI_COMM_WORLD);
    private_folder(p, node, folder);
    SUCCEEDS(dcp_about_read(folder, &text, err));
    for (int f = 0; f < p->world; f++) {
        char number[16];
        snprintf(number, sizeof number, "%d", f);
        const char *list = strstr(text, "\"shards\":[");
        CHECK(list);
        CHECK(!memchr(list + 10, number[0], strcspn(list + 10, "]")) ==
              (f / p->ranks_a_node != node));
    }
    CHECK(strstr(text, "\"rebuilt\":true") && strstr(text, "\"survives\":1"));
    free(text);
}

/* Opens the store after about.json of a node was removed, or after `change` was done to it. */
static void open_without_about(const private_files *p, int node, int (*change)(const char *)) {
    char path[PATH_MAX];
    dcp_store *store;
    private_folder(p, node, path);
    strcat(path, "/about.json");
    MPI_Barrier(MPI_COMM_WORLD);
    if (p->s->rank == 0) CHECK(unlink(path) == 0 && (!change || change(path) == 0));
    MPI_Barrier(MPI_COMM_WORLD);
    log_lines[0] = '\0';
    SUCCEEDS(open_store(p, NULL, &store, err));
    dcp_store_close(store);
    MPI_Barrier(MPI_COMM_WORLD);
}

static int make_empty(const char *path) { return mknod(path, S_IFREG | 0666, 0); }

static int make_folder(const char *path) { return mkdir(path, 0777); }

/* about.json of a complete step is missing or damaged, since a rebuild could not write it or was
 * killed. It is there again once the store is opened, unless it can't be written then either. */
static void about_is_written_later(const private_files *p) {
    char path[PATH_MAX];
    for (int node = 0; node < p->nodes; node++) {
        open_without_about(p, node, NULL);
        check_about(p, node);
        open_without_about(p, node, make_empty);
        check_about(p, node);
    }
    open_without_about(p, 0, make_folder);
    CHECK(p->s->rank || strstr(log_lines, "cannot be written now"));
    private_folder(p, 0, path);
    strcat(path, "/about.json");
    if (p->s->rank == 0) CHECK(rmdir(path) == 0 && make_empty(path) == 0);
    private_path(p, 0, "shard", path); /* it was written before the rebuild was complete */
    if (p->s->rank == 0) CHECK(unlink(path) == 0);
    open_without_about(p, 0, NULL);
    check_rebuilt(p, 1, PRIVATE_STEP, 1);
    check_about(p, 0);
}

static void too_much_loss_goes_back(const private_files *p) {
    uint64_t step;
    dcp_error failure = {0};
    private_lose(p, 3);
    check_rebuilt(p, 0, 4, 0);
    if (p->nodes > 2 && p->s->rank == 0)
        CHECK(strstr(log_lines, "step 7 is passed over: step 7 can't be rebuilt: in the"));
    for (int node = 0; node < p->nodes && p->s->rank == 0; node++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/node-%d/step-00000004", p->s->root, node);
        CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    }
    check_same_failure(rebuild(p, 0, &step, NULL, &failure), DCP_ERR_NOT_FOUND, &failure,
                       p->nodes > 2 ? "no step can be made whole; the newest one: step 7"
                                    : "no node has a complete step");
}

static void check_refused(const private_files *p, const char *redundancy, int status,
                          const char *text) {
    dcp_store *store;
    dcp_error failure = {0};
    check_same_failure(open_store(p, redundancy, &store, &failure), status, &failure, text);
}

/* The newest step was saved without redundancy, and lost nothing. Once it lacks a file, an older
 * step is the newest one. */
static void a_step_without_redundancy(const private_files *p) {
    dcp_save_options options = {.size = sizeof options, .layout = DCP_LAYOUT_SHARDED};
    char path[PATH_MAX];
    dcp_store *store;
    given g;
    held h;
    given_make(&g, 0);
    held_make(&h, &g, ROWS, p->s->rank, p->s->size, 1);
    SUCCEEDS(open_store(p, "rs(1)", &store, err));
    SUCCEEDS(dcp_save(store, 20, h.state, GIVEN_JSON, &options, NULL, err));
    dcp_store_close(store);
    SUCCEEDS(open_store(p, "none", &store, err));
    SUCCEEDS(dcp_save(store, 21, h.state, GIVEN_JSON, &options, NULL, err));
    dcp_store_close(store);
    check_rebuilt(p, 0, 21, 0);
    check_rebuilt(p, 1, 21, 0);
    snprintf(path, sizeof path, "%s/node-1/step-00000021", p->s->root);
    if (p->s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    check_rebuilt(p, 0, 20, 0);
    held_free(&h);
    given_free(&g);
}

static void what_cannot_be_is_refused(const private_files *p) {
    char dir[PATH_MAX];
    dcp_store *store;
    dcp_store_options shared = {.size = sizeof shared, .redundancy = "rs(1)"};
    dcp_save_options options = {
        .size = sizeof options, .layout = DCP_LAYOUT_SHARDED, .shards = p->world + 1};
    dcp_state *state;
    dcp_error failure = {0};
    uint64_t step;
    check_refused(p, "xor", DCP_ERR_ARG, "\"none\", \"partner\" or \"rs(K)\"");
    check_refused(p, "rs(9)", DCP_ERR_ARG, "rs(9) needs ranks in at least 10 failure domains");
    check_refused(p, p->s->rank ? "rs(1)" : "partner", DCP_ERR_MISMATCH, "redundancy");
    snprintf(dir, sizeof dir, "%s/node-0", p->s->root);
    check_same_failure(dcp_store_open(p->s->comm, dir, &shared, &store, &failure), DCP_ERR_ARG,
                       &failure, "for private stores");
    SUCCEEDS(open_store(p, "rs(1)", &store, err));
    SUCCEEDS(dcp_state_create(&state, err));
    check_same_failure(dcp_save(store, 9, state, NULL, &options, NULL, &failure), DCP_ERR_ARG,
                       &failure, "as many shards as ranks");
    check_same_failure(dcp_store_rebuild(store, p->s->rank > 0, &step, NULL, &failure),
                       DCP_ERR_MISMATCH, &failure, "every_byte: 0 on rank 0, 1 on rank");
    dcp_state_destroy(state);
    dcp_store_close(store);
    SUCCEEDS(dcp_store_open(p->s->comm, dir, NULL, &store, err));
    check_same_failure(dcp_store_rebuild(store, 0, &step, NULL, &failure), DCP_ERR_UNSUPPORTED,
                       &failure, "a shared store");
    dcp_store_close(store);
}

int main(int argc, char **argv) {
    static const char *const kinds[] = {"rs(1)", "partner"};
    scratch s;
    scratch_begin(&s, &argc, &argv);
    CHECK(s.size == 3 || s.size == 4);
    for (int i = 0; i < 2; i++) {
        private_files p = {.s = &s, .world = s.size, .ranks_a_node = s.size == 4 ? 2 : 1};
        p.nodes = p.world / p.ranks_a_node;
        save_both(&p, kinds[i]);
        a_lost_node_is_rebuilt(&p);
        one_step_is_rebuilt(&p);
        damage_counts_as_loss(&p);
        a_damaged_copy_does_not_hide_an_intact_one(&p);
        about_is_written_later(&p);
        too_much_loss_goes_back(&p);
        a_step_without_redundancy(&p);
        what_cannot_be_is_refused(&p);
        private_end(&p);
    }
    return scratch_end(&s);
}
