/* An open step can be loaded whatever a writer does to it in the meantime: `keep` would remove it,
 * or another save replaces it. It disappears once it is closed. With each engine, from one file and
 * from shards, from shared directories and from those of nodes. */
#include "support/private.h"

typedef struct kind {
    dcp_layout layout;
    dcp_engine engine;
    int is_private, replaces;
} kind;

static dcp_store *open_store(const scratch *s, const char *dir, const kind *k) {
    dcp_store *store = NULL;
    dcp_store_options to = {
        .size = sizeof to, .keep = 1, .replace = k->replaces, .private_dirs = k->is_private};
    SUCCEEDS(dcp_store_open(s->comm, dir, &to, &store, err));
    return store;
}

static void save(const scratch *s, dcp_store *store, const kind *k, uint64_t step, uint64_t salt) {
    given g;
    held h;
    dcp_save_options options = {.size = sizeof options, .layout = k->layout};
    given_make(&g, salt);
    held_make(&h, &g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_save(store, step, h.state, GIVEN_JSON, &options, NULL, err));
    held_free(&h);
    given_free(&g);
}

static void load(const scratch *s, dcp_checkpoint *ckpt, const kind *k, uint64_t salt) {
    given g;
    held h;
    dcp_load_options options = {.size = sizeof options, .engine = k->engine};
    given_make(&g, salt);
    held_make(&h, &g, COLUMNS, s->rank, s->size, 0);
    SUCCEEDS(dcp_load_with(ckpt, h.state, &options, NULL, err));
    CHECK(held_is_given(&h, &g));
    held_free(&h);
    given_free(&g);
}

static void check_names(const scratch *s, const char *dir, const char *expected) {
    char command[PATH_MAX + 200];
    snprintf(command, sizeof command,
             "test \"$(ls -A %s | grep -v -e .lock -e latest -e .writer | xargs)\" = '%s'", dir,
             expected);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0 && system(command)) {
        snprintf(command, sizeof command, "ls -A %s >&2", dir);
        (void)!system(command);
        check_failed(__FILE__, __LINE__, expected);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void load_what_is_removed(const scratch *s, int number, const kind *k) {
    char name[32], dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    snprintf(name, sizeof name, "store%d", number);
    node_dir(s, name, k->is_private ? s->rank : 0, dir);
    dcp_store *store = open_store(s, dir, k);
    save(s, store, k, 1, 10);
    SUCCEEDS((k->is_private ? dcp_checkpoint_open_private : dcp_checkpoint_open)(s->comm, dir,
                                                                                 &ckpt, err));
    for (uint64_t n = 2; n <= 3; n++) save(s, store, k, k->replaces ? 1 : n, 10 * n);
    load(s, ckpt, k, 10);
    load(s, ckpt, k, 10);
    if (!k->replaces) check_names(s, dir, "step-00000001 step-00000003");
    dcp_checkpoint_close(ckpt);
    save(s, store, k, 4, 40);
    dcp_store_close(store);
    check_names(s, dir, "step-00000004");
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    int number = 0;
    for (int replaces = 0; replaces < 2; replaces++) {
        const kind kinds[] = {{DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 0, replaces},
                              {DCP_LAYOUT_GLOBAL, DCP_ENGINE_MPIO, 0, replaces},
                              {DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, 0, replaces},
                              {DCP_LAYOUT_SHARDED, DCP_ENGINE_MPIO, 0, replaces},
                              {DCP_LAYOUT_SHARDED, DCP_ENGINE_AUTO, 1, replaces}};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            load_what_is_removed(&s, number++, &kinds[i]);
    }
    return scratch_end(&s);
}
