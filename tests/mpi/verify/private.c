/* dcp_verify of a node's folder of a private store: it has only some of the step's shards, which
 * about.json lists; those that should exist do, and each of their bytes counts. */
#include "dcp/inspect.h"
#include "support/private_files.h"

typedef struct heard {
    int lines;
    char last[4300];
} heard;

static void on_damage(void *ctx, const char *line) {
    heard *h = ctx;
    h->lines++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

static void check_damages(const char *folder, int damages, const char *text) {
    heard h = {0};
    const dcp_verify_options options = {.size = sizeof options, .ctx = &h, .on_damage = on_damage};
    int status = dcp_verify(folder, &options, NULL);
    if (h.lines != damages || !strstr(h.last, text))
        fprintf(stderr, "%d damages, not %d: %s\n", h.lines, damages, h.last);
    CHECK(status == (damages ? DCP_ERR_CORRUPT : DCP_OK) && h.lines == damages);
    CHECK(strstr(h.last, text));
}

static void save(const private_files *p, uint64_t step) {
    char dir[PATH_MAX];
    dcp_store_options store_options = {.size = sizeof store_options,
                                       .private_dirs = 1,
                                       .redundancy = "partner",
                                       .domain = p->s->rank < 2 ? "first" : "second"};
    dcp_save_options options = {.size = sizeof options, .layout = DCP_LAYOUT_SHARDED};
    dcp_store *store;
    given g;
    held h;
    given_make(&g, 0);
    held_make(&h, &g, ROWS, p->s->rank, p->s->size, 1);
    private_folder(p, p->s->rank / p->ranks_a_node, dir);
    *strrchr(dir, '/') = '\0';
    SUCCEEDS(dcp_store_open(p->s->comm, dir, &store_options, &store, err));
    SUCCEEDS(dcp_save(store, step, h.state, GIVEN_JSON, &options, NULL, err));
    dcp_store_close(store);
    held_free(&h);
    given_free(&g);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void flip(const char *path, off_t at) {
    unsigned char byte;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

static void check_flips(const char *folder, const char *path, const char *name) {
    size_t bytes;
    unsigned char *data = private_read(path, &bytes);
    const size_t places[] = {9, bytes / 3, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(path, (off_t)places[i]);
        check_damages(folder, 1, name);
        flip(path, (off_t)places[i]);
    }
    free(data);
}

/* A glance also knows which shards should exist. */
static void check_glance(const char *folder, int status, int here) {
    dcp_glance seen = DCP_GLANCE_INIT;
    CHECK(dcp_step_glance(folder, &seen, NULL) == status);
    CHECK(seen.layout == DCP_LAYOUT_SHARDED && seen.files == 4 && seen.files_here == here);
    CHECK(seen.ranks == 4 && seen.written > 0);
}

/* Rank 0, with the folder of node 0, which has the shards of ranks 0 and 1. */
static void check_node(const private_files *p) {
    char folder[PATH_MAX], path[PATH_MAX], other[PATH_MAX];
    size_t bytes;
    private_folder(p, 0, folder);
    check_damages(folder, 0, "");
    check_glance(folder, DCP_OK, 2);
    private_path(p, 1, "shard", path);
    check_flips(folder, path, "shard-00001-of-00004.h5");
    private_path(p, 1, "partner", path);
    check_flips(folder, path, "partner-00001-of-00004.bin");

    private_path(p, 1, "shard", path);
    unsigned char *data = private_read(path, &bytes);
    CHECK(unlink(path) == 0);
    check_damages(folder, 1, "shard-00001-of-00004.h5 is missing");
    check_glance(folder, DCP_ERR_CORRUPT, 1);
    snprintf(other, sizeof other, "%s/node-0/step-00000004/shard-00001-of-00004.h5", p->s->root);
    size_t other_bytes;
    unsigned char *older = private_read(other, &other_bytes);
    private_write(path, older, other_bytes); /* of another step */
    check_damages(folder, 1, "belongs to another state than");
    private_write(path, data, bytes);
    check_damages(folder, 0, "");
    free(data);
    free(older);
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    CHECK(s.size == 4);
    private_files p = {.s = &s, .world = 4, .ranks_a_node = 2, .nodes = 2};
    save(&p, 4);
    save(&p, PRIVATE_STEP);
    if (s.rank == 0) check_node(&p);
    private_end(&p);
    return scratch_end(&s);
}
