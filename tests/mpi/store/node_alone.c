/* One rank of private_mounts.sh: saves into a directory that only this rank sees, and loads what
 * all saved. With `shared`, the directory is the same on hosts that only look different. With
 * `counted`, the kernel reports that it limits memory. */
#include <inttypes.h>
#include <sys/stat.h>

#include "comm/sharing.h"
#include "store/store.h"
#include "support/private.h"

static void on_one_shared_directory(const scratch *s, const char *dir) {
    dcp_error failure = {0};
    dcp_store *store;
    const dcp_store_options options = {.size = sizeof options, .private_dirs = 1};
    int status = dcp_store_open(s->comm, dir, &options, &store, &failure);
    check_same_failure(status, DCP_ERR_BUSY, &failure, "a directory of its own per node");
}

/* Finds the mapping that holds the address, as a path to its file, which has no name. */
static void find_mapping(const void *address, char *path, size_t size) {
    uintptr_t start, end, at = (uintptr_t)address;
    char line[PATH_MAX];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    do {
        CHECK(fgets(line, sizeof line, maps));
        CHECK(sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2);
    } while (at < start || at >= end);
    fclose(maps);
    snprintf(path, size, "/proc/self/map_files/%" PRIxPTR "-%" PRIxPTR, start, end);
}

/* All of the memory that the ranks share was allocated before any rank has touched the areas in
 * it. */
static void is_reserved(const scratch *s) {
    char path[64];
    struct stat st;
    CHECK(s->comm->shared);
    const size_t bytes = 1 << 20;
    const comm_areas *areas;
    SUCCEEDS(comm_local_areas(s->comm, 1, &bytes, &areas, err));
    find_mapping(areas->data[0], path, sizeof path);
    CHECK(stat(path, &st) == 0);
    CHECK(st.st_size > 0 && st.st_blocks * 512 >= st.st_size);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void on_nodes(const scratch *s, const given *g, const char *dir) {
    char name[PATH_MAX];
    dcp_store *store = NULL;
    const dcp_store_options options = {.size = sizeof options, .private_dirs = 1};
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
    const char *mode = argc > 2 ? argv[2] : "";
    if (!strcmp(mode, "counted")) is_reserved(&s);
    if (!strcmp(mode, "shared"))
        on_one_shared_directory(&s, argv[1]);
    else
        on_nodes(&s, &g, argv[1]);
    given_free(&g);
    return scratch_end(&s);
}
