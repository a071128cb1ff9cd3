/* Private stores: ranks that pass the same directory are a node, and each node has the same steps,
 * but only with its ranks' files; if anything fails on one node, none has the step. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "store/store.h"
#include "support/scratch.h"

static int broken_fd = -1; /* cannot be synced */

/* Replaces the C library's function. */
int fsync(int fd) {
    if (fd != broken_fd) return (int)syscall(SYS_fsync, fd);
    errno = EIO;
    return -1;
}

/* The last rank has a node of its own, the others share in pairs. */
static int node_of(const scratch *s, int rank) { return rank == s->size - 1 ? 99 : rank / 2; }

static int leader_of(const scratch *s, int rank) {
    return node_of(s, rank) == 99 ? s->size - 1 : rank / 2 * 2;
}

static void node_dir(const scratch *s, const char *name, int node, char *dir) {
    snprintf(dir, PATH_MAX, "%s/%s-%d", s->root, name, node);
}

static void own_dir(const scratch *s, const char *name, char *dir) {
    node_dir(s, name, node_of(s, s->rank), dir);
}

static dcp_store *open_private(const scratch *s, const char *name, uint32_t keep) {
    char dir[PATH_MAX];
    dcp_store *store = NULL;
    dcp_store_options options = {.size = sizeof options, .keep = keep, .private_dirs = 1};
    own_dir(s, name, dir);
    SUCCEEDS(dcp_store_open(s->comm, dir, &options, &store, err));
    return store;
}

static int save_options(const scratch *s, dcp_store *store, const given *g, uint64_t step,
                        dcp_save_options options, dcp_error *err) {
    held h;
    options.size = sizeof options;
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    int status = dcp_save(store, step, h.state, GIVEN_JSON, &options, NULL, err);
    held_free(&h);
    MPI_Barrier(MPI_COMM_WORLD); /* leaders may still remove old steps when others have returned */
    return status;
}

static int save_layout(const scratch *s, dcp_store *store, const given *g, uint64_t step,
                       dcp_layout layout, dcp_error *err) {
    return save_options(s, store, g, step, (dcp_save_options){.layout = layout}, err);
}

static void save(const scratch *s, dcp_store *store, const given *g, uint64_t step) {
    SUCCEEDS(save_layout(s, store, g, step, DCP_LAYOUT_SHARDED, err));
}

/* The steps on this rank's node, written as "c3 p4 a5". */
static void check_steps(const scratch *s, const char *name, const char *expected) {
    char dir[PATH_MAX], found[256] = "";
    dcp_step *steps;
    size_t n;
    own_dir(s, name, dir);
    CHECK(dcp_steps_list(dir, &steps, &n, NULL) == DCP_OK);
    for (size_t i = 0; i < n; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%c%llu", i ? " " : "",
                 "cpa"[steps[i].kind], (unsigned long long)steps[i].step);
    free(steps);
    if (strcmp(found, expected)) fprintf(stderr, "%s, not %s\n", found, expected);
    CHECK(!strcmp(found, expected));
    MPI_Barrier(MPI_COMM_WORLD); /* so that no rank changes them in the meantime */
}

/* The nodes keep the same steps, also if one of them has lost a step's value. */
static void nodes_keep_the_same_best_steps(const scratch *s, const given *g) {
    static const char *const members[] = {"{\"loss\": 2}", "{\"loss\": 1}", "{\"loss\": 3}",
                                          "{\"loss\": 4}"};
    char dir[PATH_MAX], path[2 * PATH_MAX];
    dcp_store *store = NULL;
    dcp_store_options options = {.size = sizeof options, .keep = 1, .private_dirs = 1};
    options.keep_best = 1, options.keep_metric = "loss";
    own_dir(s, "best", dir);
    SUCCEEDS(dcp_store_open(s->comm, dir, &options, &store, err));
    for (uint64_t step = 1; step <= 4; step++) {
        if (step == 4 && s->rank == s->size - 1 && s->size > 1) {
            snprintf(path, sizeof path, "%s/step-00000002/about.json", dir);
            CHECK(!unlink(path));
        }
        SUCCEEDS(save_options(
            s, store, g, step,
            (dcp_save_options){.layout = DCP_LAYOUT_SHARDED, .about_json = members[step - 1]},
            err));
    }
    check_steps(s, "best", "c2 c4");
    if (s->rank == 0 && s->size > 1) { /* rank 0's node has lost the best step */
        snprintf(path, sizeof path, "%s/step-00000002", dir);
        CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    }
    SUCCEEDS(save_options(
        s, store, g, 5,
        (dcp_save_options){.layout = DCP_LAYOUT_SHARDED, .about_json = "{\"loss\": 5}"}, err));
    if (s->size == 1)
        check_steps(s, "best", "c2 c5");
    else
        check_steps(s, "best", node_of(s, s->rank) == node_of(s, 0) ? "c4 c5" : "c2 c4 c5");
    dcp_store_close(store);
    dcp_error error;
    options.keep_best = s->rank == s->size - 1 ? 2 : 1;
    const int expected = s->size > 1 ? DCP_ERR_MISMATCH : DCP_OK;
    CHECK(dcp_store_open(s->comm, dir, &options, &store, &error) == expected);
    if (s->size == 1) dcp_store_close(store);
}

/* A node's folder alone: nothing of it is damaged, and it does not stand for an older step. If a
 * shard is missing that it did have, it is damaged. */
static void part_is_no_damage(const scratch *s, const given *g) {
    char dir[PATH_MAX], path[2 * PATH_MAX];
    dcp_error error;
    dcp_checkpoint *ckpt;
    dcp_comm *self;
    dcp_store *store = open_private(s, "part", 0);
    save(s, store, g, 5);
    dcp_store_close(store);
    own_dir(s, "part", dir);
    SUCCEEDS(dcp_comm_self(&self, err));
    const int is_whole = s->size == 1; /* on one node */
    int status = dcp_checkpoint_open(self, dir, &ckpt, &error);
    CHECK(status == (is_whole ? DCP_OK : DCP_ERR_ARG));
    if (!status) dcp_checkpoint_close(ckpt);
    if (status) CHECK(strstr(error.message, "one node's part of a private store's step"));
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/step-00000005/shard-%05d-of-%05d.h5", dir, s->rank, s->size);
    CHECK(!unlink(path));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(dcp_checkpoint_open(self, dir, &ckpt, &error) == DCP_ERR_CORRUPT);
    dcp_comm_destroy(self);
}

static void files_lie_with_their_ranks(const scratch *s, const given *g) {
    char dir[PATH_MAX], path[2 * PATH_MAX];
    dcp_store *store = open_private(s, "files", 0);
    CHECK(store->leader == leader_of(s, s->rank));
    CHECK(store->nodes == (s->size <= 2 ? s->size : s->size / 2 + 1));
    save(s, store, g, 5);
    own_dir(s, "files", dir);
    for (int r = 0; r < s->size; r++) {
        snprintf(path, sizeof path, "%s/step-00000005/shard-%05d-of-%05d.h5", dir, r, s->size);
        CHECK((access(path, F_OK) == 0) == (leader_of(s, r) == store->leader));
    }
    snprintf(path, sizeof path, "%s/step-00000005", dir);
    char *about = NULL;
    SUCCEEDS(dcp_about_read(path, &about, err));
    free(about);
    snprintf(path, sizeof path, "%s/latest/about.json", dir);
    CHECK(access(path, F_OK) == 0);
    dcp_store_close(store);
}

static void what_is_refused(const scratch *s, const given *g) {
    char dir[PATH_MAX];
    dcp_error failure = {0};
    dcp_store *store = open_private(s, "files", 0), *second;
    check_same_failure(save_layout(s, store, g, 6, DCP_LAYOUT_GLOBAL, &failure),
                       DCP_ERR_UNSUPPORTED, &failure, "only layout sharded");
    check_same_failure(save_layout(s, store, g, 5, DCP_LAYOUT_SHARDED, &failure), DCP_ERR_STATE,
                       &failure, "exists already");
    dcp_store_options options = {.size = sizeof options, .private_dirs = 1};
    own_dir(s, "files", dir);
    check_same_failure(dcp_store_open(s->comm, dir, &options, &second, &failure), DCP_ERR_BUSY,
                       &failure, s->size > 1 ? "a directory of its own per node" : "in use");
    check_same_failure(dcp_store_open(s->comm, s->rank ? dir : NULL, &options, &second, &failure),
                       DCP_ERR_ARG, &failure, "NULL");
    if (s->size > 1) {
        options.keep = s->rank == 1 ? 7 : 3;
        check_same_failure(dcp_store_open(s->comm, dir, &options, &second, &failure),
                           DCP_ERR_MISMATCH, &failure, "values for keep: 3 on rank");
        check_same_failure(dcp_store_open(s->comm, dir, &options, &second, &failure),
                           DCP_ERR_MISMATCH, &failure, "7 on rank 1");
        options.keep = 3;
        options.replace = s->rank == 1;
        check_same_failure(dcp_store_open(s->comm, dir, &options, &second, &failure),
                           DCP_ERR_MISMATCH, &failure, "values for replace");
        options.replace = 0;
        options.private_dirs = s->rank == 1;
        check_same_failure(dcp_store_open(s->comm, dir, &options, &second, &failure),
                           DCP_ERR_MISMATCH, &failure, "private_dirs");
    }
    dcp_store_close(store);
}

static void nodes_keep_the_same_steps(const scratch *s, const given *g) {
    dcp_store *store = open_private(s, "keep", 2);
    for (uint64_t step = 1; step <= 3; step++) save(s, store, g, step);
    check_steps(s, "keep", "c2 c3");
    dcp_store_close(store);
    /* Step 3 got its name only on some nodes: it does not count, and is removed with the older
     * ones. */
    char dir[PATH_MAX], path[2 * PATH_MAX];
    node_dir(s, "keep", 99, dir);
    snprintf(path, sizeof path, "%s/step-00000003", dir);
    if (s->rank == 0 && s->size > 1) CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    int lost = s->size > 1 && node_of(s, s->rank) == 99;
    store = open_private(s, "keep", 2);
    save(s, store, g, 4);
    check_steps(s, "keep", lost ? "c2 c4" : s->size > 1 ? "c2 c3 c4" : "c3 c4");
    save(s, store, g, 5);
    check_steps(s, "keep", "c4 c5");
    dcp_store_close(store);
}

static void what_some_nodes_have_is_replaced(const scratch *s, const given *g) {
    char dir[PATH_MAX], path[2 * PATH_MAX];
    node_dir(s, "keep", 99, dir);
    snprintf(path, sizeof path, "%s/step-00000005", dir);
    if (s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_store *store = open_private(s, "keep", 2);
    save(s, store, g, 5);
    check_steps(s, "keep", "c4 c5");
    dcp_store_close(store);
}

static void a_run_goes_back_on_all_nodes(const scratch *s, const given *g) {
    dcp_store *store = open_private(s, "keep", 2);
    SUCCEEDS(dcp_store_continue_from(store, 3, err));
    save(s, store, g, 4);
    check_steps(s, "keep", "c4 a4 a5");
    save(s, store, g, 5);
    check_steps(s, "keep", "c4 c5 a5");
    save(s, store, g, 6);
    check_steps(s, "keep", "c5 c6");
    dcp_store_close(store);
}

/* The last rank's node cannot make its step's name durable: no node has the step. */
static void a_failure_on_one_node_is_everybodys(const scratch *s, const given *g) {
    dcp_error failure = {0};
    dcp_store *store = open_private(s, "keep", 2);
    if (s->rank == s->size - 1) broken_fd = store->dir_fd;
    for (int i = 0; i < 2; i++) {
        check_same_failure(save_layout(s, store, g, 7, DCP_LAYOUT_SHARDED, &failure), DCP_ERR_IO,
                           &failure, "sync");
        CHECK(failure.rank == s->size - 1);
        check_steps(s, "keep", "c5 c6");
    }
    broken_fd = -1;
    save(s, store, g, 7);
    check_steps(s, "keep", "c6 c7");
    dcp_store_close(store);
}

/* Only steps that all nodes have count. */
static void an_older_step_is_refused(const scratch *s, const given *g) {
    dcp_error failure = {0};
    char dir[PATH_MAX], path[2 * PATH_MAX];
    dcp_store *store = open_private(s, "keep", 2);
    check_same_failure(save_layout(s, store, g, 5, DCP_LAYOUT_SHARDED, &failure), DCP_ERR_STATE,
                       &failure, "step 5 is older than step 7");
    check_steps(s, "keep", "c6 c7");
    node_dir(s, "keep", 99, dir);
    snprintf(path, sizeof path, "%s/step-00000009", dir);
    if (s->rank == 0 && s->size > 1) CHECK(mkdir(path, 0777) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    save(s, store, g, 8);
    int has_more = s->size > 1 && node_of(s, s->rank) == 99;
    check_steps(s, "keep", has_more ? "c7 c8 c9" : "c7 c8");
    if (s->rank == 0 && s->size > 1) CHECK(rmdir(path) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_store_close(store);
}

/* Some or all leaders set steps aside, and then the save failed. */
static void going_back_after_a_failure(const scratch *s, const given *g) {
    dcp_error failure = {0};
    dcp_store *store = open_private(s, "keep", 2);
    SUCCEEDS(dcp_store_continue_from(store, 7, err));
    if (s->rank == s->size - 1) broken_fd = store->dir_fd;
    for (int i = 0; i < 2; i++)
        check_same_failure(save_layout(s, store, g, 8, DCP_LAYOUT_SHARDED, &failure), DCP_ERR_IO,
                           &failure, "sync");
    broken_fd = -1;
    check_same_failure(save_layout(s, store, g, 6, DCP_LAYOUT_SHARDED, &failure), DCP_ERR_STATE,
                       &failure, "step 6 is older than step 7");
    save(s, store, g, 8);
    check_steps(s, "keep", "c7 c8 a8");
    dcp_store_close(store);
}

/* Checks that all ranks were refused, with the same words. */
static void check_kept(dcp_store *store, uint64_t step, int expected, const char *text) {
    dcp_error failure;
    const int status = dcp_step_remove(store, step, &failure);
    check_same_failure(status, expected, &failure, text);
}

/* A step that is held on one node is kept on all; one that a node lacks is removed from the others;
 * and saves continue after their last step was removed. */
static void removal_is_on_all_nodes(const scratch *s, const given *g) {
    char dir[PATH_MAX], path[PATH_MAX + 32];
    dcp_store *store = open_private(s, "removal", 0);
    dcp_pin *pin = NULL;
    own_dir(s, "removal", dir);
    for (uint64_t step = 1; step <= 4; step++) save(s, store, g, step);
    snprintf(path, sizeof path, "%s/step-00000002", dir);
    if (s->rank == s->size - 1) SUCCEEDS(dcp_step_pin(path, &pin, err));
    MPI_Barrier(MPI_COMM_WORLD);
    check_kept(store, 2, DCP_ERR_BUSY, "pinned");
    check_steps(s, "removal", "c1 c2 c3 c4");
    dcp_step_unpin(pin);
    MPI_Barrier(MPI_COMM_WORLD);
    SUCCEEDS(dcp_step_remove(store, 2, err));
    check_steps(s, "removal", "c1 c3 c4");
    check_kept(store, 2, DCP_ERR_NOT_FOUND, "holds no step-00000002");
    if (s->size > 1) check_kept(store, 3 + (s->rank == 1), DCP_ERR_MISMATCH, "step to remove");

    if (s->rank == 0) { /* as an interrupted publication leaves it */
        snprintf(path, sizeof path, "%s/step-00000001", dir);
        CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->size > 1) SUCCEEDS(dcp_step_remove(store, 1, err));
    check_steps(s, "removal", "c3 c4");

    SUCCEEDS(dcp_store_mark_intact(store, 3, err));
    SUCCEEDS(dcp_step_remove(store, 4, err)); /* parts of which the next save would reuse */
    save(s, store, g, 5);
    check_steps(s, "removal", "c3 c5");
    dcp_store_close(store);
}

/* A removal during a save in flight waits for it. */
static void removal_waits_for_the_save(const scratch *s, const given *g) {
    held h;
    dcp_saving *saving = NULL;
    dcp_save_options options = {.size = sizeof options, .layout = DCP_LAYOUT_SHARDED};
    dcp_store *store = open_private(s, "beside", 0);
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    save(s, store, g, 1);
    SUCCEEDS(dcp_save_async(store, 2, h.state, GIVEN_JSON, &options, &saving, err));
    SUCCEEDS(dcp_step_remove(store, 1, err));
    check_steps(s, "beside", "c2");
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    held_free(&h);
    dcp_store_close(store);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    files_lie_with_their_ranks(&s, &g);
    nodes_keep_the_same_best_steps(&s, &g);
    part_is_no_damage(&s, &g);
    what_is_refused(&s, &g);
    nodes_keep_the_same_steps(&s, &g);
    what_some_nodes_have_is_replaced(&s, &g);
    a_run_goes_back_on_all_nodes(&s, &g);
    a_failure_on_one_node_is_everybodys(&s, &g);
    an_older_step_is_refused(&s, &g);
    going_back_after_a_failure(&s, &g);
    removal_is_on_all_nodes(&s, &g);
    removal_waits_for_the_save(&s, &g);
    given_free(&g);
    return scratch_end(&s);
}
