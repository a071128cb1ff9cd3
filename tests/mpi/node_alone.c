/* One rank of private_mounts.sh: saves into a directory that only this rank sees, and loads what
 * all saved. With `shared`: the directory is one after all, on hosts that only look different. */
#include "private.h"
#include "store/store.h"

static void on_one_shared_directory(const scratch *s, const char *dir) {
    dcp_error failure = {0};
    dcp_store *store;
    const dcp_store_options options = {.private_dirs = 1};
    int status = dcp_store_open(s->comm, dir, &options, &store, &failure);
    check_same_failure(status, DCP_ERR_BUSY, &failure, "a directory of its own a node");
}

static void on_nodes(const scratch *s, const given *g, const char *dir) {
    char name[PATH_MAX];
    dcp_store *store = NULL;
    const dcp_store_options options = {.private_dirs = 1};
    SUCCEEDS(dcp_store_open(s->comm, dir, &options, &store, err));
    CHECK(store->nodes == s->size && store->leader == s->rank);
    dcp_store_close(store);
    private_save(s->comm, dir, g, ROWS, 5);
    for (int r = 0; r < s->size; r++) {
        snprintf(name, sizeof name, "%s/step-00000005/shard-%05d-of-%05d.h5", dir, r, s->size);
        CHECK((access(name, F_OK) == 0) == (r == s->rank));
    }
    for (scheme how = ROWS; how < LOAD_SCHEMES; how++) private_load(s->comm, dir, g, how, 5);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    CHECK(argc >= 2);
    given_make(&g, 0);
    if (argc > 2)
        on_one_shared_directory(&s, argv[1]);
    else
        on_nodes(&s, &g, argv[1]);
    given_free(&g);
    return scratch_end(&s);
}
