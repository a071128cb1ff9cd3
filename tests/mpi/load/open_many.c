/* Opening a step needs few collectives, for 2 shards as for 100, and fewer if each rank reads some
 * and finds the same tensors there. No file of the step remains open, and a load has at most as
 * many open as io/descriptors.h allows. */
#include <dirent.h>

#include "io/descriptors.h"
#include "support/counted.h"
#include "support/scratch.h"

enum { MANY = 100, COLUMNS_EACH = 5, MOST_COLLECTIVES = 12, MOST_OF_SAME = 6 };

static const dcp_tensor tensor = {"/model/rows", DCP_F32, 2, {MANY, COLUMNS_EACH}};

static void save_shards(const scratch *s, int shards, const char *name) {
    static float rows[MANY][COLUMNS_EACH];
    dcp_state *state = NULL;
    dcp_store *store = scratch_store(s, s->comm, "whole");
    const dcp_box own = dcp_box_chunk(&tensor, s->rank, s->size);
    for (size_t i = 0; i < MANY * COLUMNS_EACH; i++)
        rows[i / COLUMNS_EACH][i % COLUMNS_EACH] = (float)i;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &tensor, &own, rows[own.start[0]], err));
    SUCCEEDS(dcp_save(store, 5, state, NULL, NULL, NULL, err));
    dcp_state_destroy(state);
    dcp_store_close(store);
    dcp_checkpoint *from = scratch_open(s, s->comm, "whole");
    dcp_store *to = scratch_store(s, s->comm, name);
    const dcp_rewrite_options options = {
        .size = sizeof options, .layout = DCP_LAYOUT_SHARDED, .shards = shards};
    SUCCEEDS(dcp_rewrite(from, to, &options, NULL, err));
    dcp_checkpoint_close(from);
    dcp_store_close(to);
}

/* The number of shards of that step that this process has open. */
static int shards_open(const char *name) {
    char link[64], path[PATH_MAX];
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        snprintf(link, sizeof link, "/proc/self/fd/%.20s", e->d_name);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length < 0) continue;
        path[length] = 0;
        n += strstr(path, name) && strstr(path, "shard-");
    }
    closedir(dir);
    return n;
}

static void open_and_load(const scratch *s, dcp_comm *comm, const char *name, size_t *collectives) {
    static float rows[MANY][COLUMNS_EACH];
    dcp_state *state = NULL;
    const dcp_box all = dcp_box_whole(&tensor);
    counted_begin();
    dcp_checkpoint *ckpt = scratch_open(s, comm, name);
    *collectives = counted_end(name);
    CHECK(shards_open(name) == 0);
    memset(rows, 0, sizeof rows);
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &tensor, &all, rows, err));
    SUCCEEDS(dcp_load(ckpt, state, NULL, err));
    CHECK(rows[MANY - 1][0] == (float)((MANY - 1) * COLUMNS_EACH));
    CHECK((unsigned)shards_open(name) <= io_fd_cache_limit() && io_fd_cache_limit() <= 64);
    dcp_state_destroy(state);
    dcp_checkpoint_close(ckpt);
    CHECK(shards_open(name) == 0);
}

int main(int argc, char **argv) {
    scratch s;
    size_t few, many;
    scratch_begin(&s, &argc, &argv);
    dcp_comm *comm = counted_comm();
    save_shards(&s, 2, "few-shards");
    save_shards(&s, MANY, "many-shards");
    open_and_load(&s, comm, "few-shards", &few);
    open_and_load(&s, comm, "many-shards", &many);
    CHECK(few <= MOST_COLLECTIVES && many <= MOST_OF_SAME && (few > 0 || s.size == 1));
    dcp_comm_destroy(comm);
    return scratch_end(&s);
}
